import type { Command } from 'cac';
import { keepAlive } from '../keep-alive.ts';
import { asChoice, flag, type Options, option } from '../options.ts';
import { type CommandContext, CommandError, printable } from '../output.ts';
import { parseCapabilities } from './grants.ts';
import type { RunOptions } from './serve.ts';
import { deviceFacts, lockSettings, openCompanion, SETTINGS_OPTION } from './settings.ts';

/** `svc companion run`: a phone in the terminal. */
export function define(command: Command): void {
  command
    .option('--device <kind>', 'simulated (default): a phone in memory that never sends a message or makes a call')
    .option('--approve <mode>', 'how to answer confirmations: ask (default), never or always')
    .option('--master <state>', 'on or off: set the master toggle first')
    .option('--messages <state>', 'on or off: set the messages toggle first (lets the agent write to you)')
    .option('--grant <list>', "set the grants first: 'all', or ids such as screen_inspection,screen_control=30m")
    .option('--name <name>', 'device name shown by the relay')
    .option(...SETTINGS_OPTION)
    .option('--json', 'print one JSON object per line; read answers as JSON lines from stdin')
    .example((name) => `${name} run                              # keys: m master, g grants, f freeze, ? help, q quit`)
    .example((name) => `${name} run --master on --grant all --approve ask`)
    .example((name) => `${name} run --json --approve never`)
    .example((name) => `${name} run --messages on                # then, elsewhere: svc phone send "Hello" --wait`)
    .example(`echo '{"request_id":"...","allow":true}'   # a line for stdin of run --json: answers a confirmation`)
    .action(run);
}

function readRunOptions(options: Options, now: number): RunOptions {
  option(options, '--device', asChoice('simulated'));
  const master = option(options, '--master', asChoice('on', 'off'));
  const messages = option(options, '--messages', asChoice('on', 'off'));
  const capabilities = option(options, '--grant', (text) => parseCapabilities(text, now));
  return {
    approve: option(options, '--approve', asChoice('ask', 'never', 'always')) ?? 'ask',
    json: flag(options, '--json'),
    change: {
      ...(master && { masterEnabled: master === 'on' }),
      ...(messages && { messagesEnabled: messages === 'on' }),
      ...(capabilities && { capabilities }),
    },
  };
}

/** Runs until a signal, `q`, or a refusal by the relay. */
async function run(given: Options, context: CommandContext): Promise<void> {
  const options = readRunOptions(given, Date.now());
  const companion = await openCompanion(given, context);
  const { settings } = companion;
  const device = deviceFacts(given, settings.pairing()?.device_name);
  const howToPair = `Pair with: svc pair | ${context.program} pair -`;
  if (!settings.pairing()) throw new CommandError('this companion is not paired with a relay', howToPair);
  const release = await lockSettings(companion);
  try {
    await settings.update(options.change);
    // The phone with all its commands is loaded only here: the help does without.
    const { serve } = await import('./serve.ts');
    const refusal = await keepAlive(serve({ options, companion, context, device }));
    if (refusal !== null) {
      throw new CommandError(`the relay no longer knows this device: ${printable(refusal)}`, howToPair);
    }
  } finally {
    // A key pressed just before the end may have revoked a grant, which must be saved.
    await settings.settled();
    await release();
  }
}
