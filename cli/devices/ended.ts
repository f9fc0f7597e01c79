import { isTime } from '../../lib/kit/clock.ts';
import { asObject } from '../../lib/kit/json.ts';
import { openOperatorRelay } from '../operator-relay.ts';
import { flag, type Options } from '../options.ts';
import { type CommandContext, columns, createStyle, line, printable, printJson, sentence } from '../output.ts';

const HEAD = ['NAME', 'SESSION', 'ENDED', 'WHY'];

/** `svc devices --ended`: the sessions that ended within 30 days, and why (contract 11 §2). */
export async function listEnded(options: Options, context: CommandContext): Promise<void> {
  const relay = await openOperatorRelay(options, context);
  const answer = await relay.call({ method: 'GET', path: '/sessions/ended' });
  if (flag(options, '--json')) return printJson(context.stdout, answer);
  const rows = (Array.isArray(answer.sessions) ? answer.sessions : []).map((item) => asObject(item) ?? {});
  if (rows.length === 0) return sentence(context.stdout, 'No session has ended within 30 days.');
  const cells = rows.map(({ device_name, token_prefix, ended_at, reason }) => [
    printable(String(device_name)),
    printable(String(token_prefix)),
    isTime(ended_at, 1000) ? new Date(ended_at * 1000).toISOString().slice(0, 16).replace('T', ' ') : '?',
    printable(String(reason)),
  ]);
  const style = createStyle(context.stdout, context.env);
  const [head = '', ...lines] = columns([HEAD, ...cells], '');
  line(context.stdout, style.bold(head));
  for (const text of lines) line(context.stdout, text);
  if (rows.some(({ reason }) => reason === 'clock?')) {
    sentence(context.stdout, 'clock?: ended by a clock that may be wrong. Set it right, and these devices are back.');
  }
}
