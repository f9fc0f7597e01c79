import type { CAC } from 'cac';
import type { Options } from './options.ts';
import type { CommandContext } from './output.ts';

// What the commands do is loaded when one is called: the help of `svc` and every other command do without.

/** `svc phone send`: what the agent does to reach its person, for people and scripts on this machine. */
export function registerPhoneSend(program: CAC): void {
  program
    .command('send <text>', 'send a message to the phone; it waits 24 hours for one. - reads the text from stdin')
    .option('--title <title>', 'title of the notification')
    .option('--chat <id>', 'the chat it belongs to (default: none; with --wait one of its own)')
    .option('--surfacing <how>', 'default, notification, inbox (silent) or session (into the open chat)')
    .option(
      '--wait [duration]',
      'wait for the reply and print it: seconds, or 5m (default 5m). Leaves other replies alone',
    )
    .option('--json', 'print one JSON document')
    .example((name) => `${name} send "Dinner is ready" --title Kitchen`)
    .example((name) => `make 2>&1 | tail -1 | ${name} send - --surfacing inbox`)
    .example((name) => `answer=$(${name} send "Deploy now?" --wait 10m)   # the reply, and nothing else, on stdout`)
    .example((name) => `${name} send --wait -- "5 minutes left, go on?"    # after -- everything is text`)
    .action(async (text: string, options: Options, context: CommandContext) =>
      (await import('./phone-send.ts')).send(text, options, context),
    );
}

/** `svc phone list`: what waits for a phone. */
export function registerPhoneList(program: CAC): void {
  program
    .command('list', 'show the messages that wait for a phone')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} list`)
    .example((name) => `${name} list --json`)
    .action(async (options: Options, context: CommandContext) =>
      (await import('./phone-queue.ts')).list(options, context),
    );
}

/** `svc phone cancel`: takes messages back before a phone has them. */
export function registerPhoneCancel(program: CAC): void {
  program
    .command('cancel [id]', 'take back a message that waits, or all of them with --all')
    .option('--all', 'every message that waits')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} cancel 3f9a1c0d77e2       # the id that send and list show`)
    .example((name) => `${name} cancel --all`)
    .action(async (id: string | undefined, options: Options, context: CommandContext) =>
      (await import('./phone-queue.ts')).cancel(id, options, context),
    );
}
