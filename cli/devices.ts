import type { Command } from 'cac';
import { ACTIONS } from './actions.ts';
import { extend, reduce, rename, revoke } from './devices/change.ts';
import { listEnded } from './devices/ended.ts';
import { devicesOf, duration } from './devices/rows.ts';
import { deviceLines } from './devices/table.ts';
import { watch } from './devices/watch.ts';
import { freezeOf, printFreeze } from './freeze-text.ts';
import { openOperatorRelay } from './operator-relay.ts';
import { actionOf, checkOwners, flag, type Options } from './options.ts';
import { type CommandContext, createStyle, line, printJson, sentence, UsageError } from './output.ts';
import { RELAY_OPTION } from './remote-relay.ts';

/** The actions to which an option belongs. */
const OWNERS = {
  '--yes': ['revoke'],
  '--keep-shells': ['revoke'],
  '--ttl': ['extend', 'reduce'],
  '--grants': ['reduce'],
  '--without': ['reduce'],
  '--ended': ['list'],
};

/** `svc devices [list|watch|rename|extend|reduce|revoke]`: the paired devices of the relay (contract 09 §2, 11 §2). */
export function define(command: Command): void {
  command
    .option('--yes', 'revoke: do not ask')
    .option('--keep-shells', 'revoke: leave the shells of the device in tmux, and what runs in them')
    .option('--ttl <duration>', 'reduce, extend: the session ends after this time, such as 7d')
    .option('--grants <list>', 'reduce: grants end after these times, such as terminal=1h,bridge=1d')
    .option('--without <list>', 'reduce: take these grants away whole, such as terminal,files')
    .option('--ended', 'list: the sessions that ended within 30 days, and why')
    .option(...RELAY_OPTION)
    .option('--json', 'print one JSON document; watch prints one per change, each on a line')
    .example((name) => `${name} devices`)
    .example((name) => `${name} devices watch`)
    .example((name) => `${name} devices --ended`)
    .example((name) => `${name} devices rename "Pixel 9" "Phone of Ada"`)
    .example((name) => `${name} devices extend "Pixel 9"              # as long as its pairing gave it, from now`)
    .example((name) => `${name} devices revoke "Pixel 9"`)
    .example((name) => `${name} devices revoke 3f9c2a10 --keep-shells --yes`)
    .example((name) => `${name} devices reduce "Pixel 9" --ttl 7d --grants terminal=1h`)
    .action(run);
}

async function run(
  word: string | undefined,
  device: string | undefined,
  name: string | undefined,
  options: Options,
  context: CommandContext,
): Promise<void> {
  const action = actionOf(word, ...ACTIONS.devices);
  checkOwners(options, action, OWNERS);
  if (action === 'rename') return rename(device, name, options, context);
  if (name !== undefined) throw new UsageError(`unexpected argument '${name}'`);
  if (action === 'revoke') return revoke(device, options, context);
  if (action === 'reduce') return reduce(device, options, context);
  if (action === 'extend') return extend(device, options, context);
  if (device !== undefined) throw new UsageError(`unexpected argument '${device}'`);
  if (action === 'watch') return watch(options, context);
  if (flag(options, '--ended')) return listEnded(options, context);
  const relay = await openOperatorRelay(options, context);
  const [answer, frozen] = await Promise.all([
    relay.call({ method: 'GET', path: '/relay/devices' }),
    freezeOf(relay).catch(() => null),
  ]);
  if (flag(options, '--json')) return printJson(context.stdout, { ...answer, frozen });
  printFreeze(frozen, context);
  const now = Date.now() / 1000;
  const devices = devicesOf(answer, now);
  if (devices.length === 0) {
    sentence(context.stdout, `No device is paired. Pair one with: ${context.program} pair`);
    return;
  }
  const style = createStyle(context.stdout, context.env);
  for (const text of deviceLines(devices, now, style, context.stdout)) line(context.stdout, text);
  for (const { name, expiresAt } of devices.filter(({ endsSoon }) => endsSoon)) {
    const left = duration((expiresAt ?? now) - now);
    sentence(context.stdout, `${name} ends in ${left}. Extend it with: ${context.program} devices extend "${name}"`);
  }
}
