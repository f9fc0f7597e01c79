import type { Command } from 'cac';
import type { Options } from './options.ts';
import type { CommandContext } from './output.ts';

const SETTINGS = ['--settings <path>', 'settings file (default <agent home>/companion/settings.json)'] as const;

/** `svc companion pair`: pairs this machine with a relay as if it were a phone. */
export function definePair(command: Command): void {
  command
    .option('--name <name>', 'what the relay calls this device')
    .option('--prefer <role>', 'route to try first, such as lan, tailscale or public')
    .option(...SETTINGS)
    .option('--json', 'print one JSON document')
    .example((name) => `svc pair | ${name} pair -                # nothing secret in the shell history`)
    .example((name) => `${name} pair 'svc-relay://pair?payload=...'`)
    .example((name) => `${name} pair - --name 'Test phone' < payload.json`)
    .action(async (link: string | undefined, options: Options, context: CommandContext) =>
      (await import('./companion-pair.ts')).pair(link, options, context),
    );
}

/** `svc companion run`: a phone that lives in the terminal. */
export function defineRun(command: Command): void {
  command
    .option('--device <kind>', 'simulated (default): a phone in memory that sends and calls nobody')
    .option('--approve <how>', 'ask (default), never or always: what becomes of confirmations')
    .option('--master <state>', 'on or off: set the master toggle first')
    .option('--messages <state>', 'on or off: set the messages toggle first (the agent can write to you)')
    .option('--grant <list>', "set the grants first: 'all', or ids such as screen_inspection,screen_control=30m")
    .option('--name <name>', 'what the relay calls this device')
    .option(...SETTINGS)
    .option('--json', 'one JSON object per line on stdout; answers as JSON lines on stdin')
    .example(
      (name) => `${name} run                              # keys: m master, g grants, t messages, ? help, q quit`,
    )
    .example((name) => `${name} run --master on --grant all --approve ask`)
    .example((name) => `${name} run --json --approve never`)
    .example((name) => `${name} run --messages on                # then, elsewhere: svc phone send "Hello" --wait`)
    .example(`echo '{"request_id":"...","allow":true}'   # a line for stdin of run --json: answers a confirmation`)
    .action(async (options: Options, context: CommandContext) =>
      (await import('./companion-run.ts')).run(options, context),
    );
}

/** `svc companion status`: what is stored, without a connection. */
export function defineStatus(command: Command): void {
  command
    .option(...SETTINGS)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} status`)
    .example((name) => `${name} status --json`)
    .action(async (options: Options, context: CommandContext) =>
      (await import('./companion-status.ts')).status(options, context),
    );
}

/** `svc companion unpair`: forgets the relay. */
export function defineUnpair(command: Command): void {
  command
    .option(...SETTINGS)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} unpair`)
    .action(async (options: Options, context: CommandContext) =>
      (await import('./companion-status.ts')).unpair(options, context),
    );
}
