import { variables } from '../../lib/config.ts';
import { asObject } from '../../lib/kit/json.ts';
import { ROOT_PROFILE, readEnablement } from '../../lib/operator/enablement.ts';
import { devicesOf } from '../devices/rows.ts';
import { loadEnvironment, readVariable } from '../environment.ts';
import { openPairings } from '../mcp/pairings.ts';
import { openOperatorRelay } from '../operator-relay.ts';
import { type CommandContext, printable } from '../output.ts';
import { pause } from '../pause.ts';
import type { Live } from './values.ts';

/** Maximum milliseconds between pressing Tab and the completions. */
const TIMEOUT = 1000;
/** Values that a terminal can list. */
const MAX_VALUES = 1000;
/** Items of the history in one answer. */
const MAX_HISTORY = 200;
/** States of a question that can be withdrawn. */
const OPEN = new Set(['queued', 'sent', 'shown']);

const SOURCES: Record<Live, (context: CommandContext) => Promise<string[]>> = { devices, messages, profiles, mcp };

/**
 * The values of a kind as they are now (contract 11 §4), each in one line and safe for a terminal; the shell quotes them.
 * None when the relay does not answer within a second. Never throws.
 */
export async function liveValues(kind: Live, context: CommandContext): Promise<string[]> {
  const deadline = new AbortController();
  const values = await Promise.race([
    SOURCES[kind](context).catch(() => []),
    pause(TIMEOUT, deadline.signal).then((): string[] => []),
  ]);
  deadline.abort();
  return [...new Set(values)].filter(isValue).slice(0, MAX_VALUES);
}

/** A value that begins with `-` would be an option. */
const isValue = (text: string): boolean => text !== '' && text === printable(text) && !text.startsWith('-');

const call = async (context: CommandContext, path: string) =>
  (await openOperatorRelay({}, context)).call({ method: 'GET', path, timeout: TIMEOUT });

/** Names; sessions of devices whose name is no value, or not theirs alone. */
async function devices(context: CommandContext): Promise<string[]> {
  const rows = devicesOf(await call(context, '/relay/devices'), Date.now() / 1000);
  const counts = new Map<string, number>();
  for (const { name } of rows) counts.set(name.toLowerCase(), (counts.get(name.toLowerCase()) ?? 0) + 1);
  return rows.map(({ name, prefix }) => (isValue(name) && counts.get(name.toLowerCase()) === 1 ? name : prefix));
}

/** Ids that `svc phone cancel` accepts: queued messages and unanswered questions, latest first. */
async function messages(context: CommandContext): Promise<string[]> {
  const [{ messages: queued }, { latest }] = await Promise.all([
    call(context, '/phone/outbound'),
    call(context, '/phone/history?limit=1'),
  ]);
  // The relay lists forward from a number.
  const since = Math.max(0, (typeof latest === 'number' ? latest : 0) - MAX_HISTORY);
  const { items } = await call(context, `/phone/history?since=${since}&limit=${MAX_HISTORY}`);
  const idOf = (row: unknown) => String(asObject(row)?.message_id ?? '');
  const questions = (Array.isArray(items) ? items : []).filter((item) => {
    const { kind, question, state } = asObject(item) ?? {};
    return kind === 'message' && question === true && OPEN.has(String(state));
  });
  return [...(Array.isArray(queued) ? queued : []).map(idOf), ...questions.map(idOf).reverse()];
}

async function profiles({ env, createHost }: CommandContext): Promise<string[]> {
  const environment = loadEnvironment(env);
  const host = await createHost(environment.directories.agentHome);
  const rows = await readEnablement(host, { agentConfig: readVariable(variables.agentConfig, environment) });
  return rows.map(({ profile }) => (profile === ROOT_PROFILE ? 'default' : profile));
}

async function mcp(context: CommandContext): Promise<string[]> {
  const pairings = await openPairings(loadEnvironment(context.env).directories.agentHome, context);
  return pairings.all().map(({ name }) => name);
}
