import { createLink, type Link } from '../lib/companion/link/link.ts';
import { createMediaClient } from '../lib/companion/link/media.ts';
import type { SafetySettings } from '../lib/companion/safety-settings.ts';
import { describeError } from '../lib/errors.ts';
import { createLog } from '../lib/log.ts';
import { type Approve, type Asker, createAsker } from './companion-ask.ts';
import { deviceFacts } from './companion-device.ts';
import { parseCapabilities } from './companion-grants.ts';
import { createJsonView } from './companion-json.ts';
import { readKeys } from './companion-keys.ts';
import { createMessagesBehind, createPrompt } from './companion-messages.ts';
import { createPhoneBehind } from './companion-phone.ts';
import { createScreen, type Screen } from './companion-screen.ts';
import { readScript } from './companion-script.ts';
import { type Companion, lockSettings, openCompanion } from './companion-settings.ts';
import type { View } from './companion-view.ts';
import { keepAlive } from './keep-alive.ts';
import { asChoice, flag, type Options, option } from './options.ts';
import { type CommandContext, CommandError, printable } from './output.ts';

interface RunOptions {
  approve: Approve;
  json: boolean;
  change: Partial<SafetySettings>;
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

/** `svc companion run`: until a signal, `q`, or the relay refusing this device. */
export async function run(given: Options, context: CommandContext): Promise<void> {
  const options = readRunOptions(given, Date.now());
  const device = deviceFacts(given);
  const companion = await openCompanion(given, context);
  const { settings } = companion;
  const again = `Pair with: svc pair | ${context.program} pair -`;
  if (!settings.pairing()) throw new CommandError('this companion is not paired with a relay', again);
  const release = await lockSettings(companion);
  try {
    if (Object.keys(options.change).length > 0) await settings.update(options.change);
    const live = !options.json && context.stdin.isTTY === true && context.stdout.isTTY === true;
    const ended = await keepAlive(serve({ options, companion, context, live, device }));
    if (ended !== null) throw new CommandError(`the relay no longer knows this device: ${printable(ended)}`, again);
  } finally {
    // A key pressed just before the end may have revoked something.
    await settings.settled();
    await release();
  }
}

interface ServeParts {
  options: RunOptions;
  companion: Companion;
  context: CommandContext;
  live: boolean;
  device: ReturnType<typeof deviceFacts>;
}

/** Runs link and phone to their end: null when it was asked for, else why the relay refused. */
async function serve({ options, companion, context, live, device }: ServeParts): Promise<string | null> {
  const { settings, clock } = companion;
  const [{ dial }, { callRelay }] = await Promise.all([
    import('../lib/host/node/dial.ts'),
    import('../lib/host/node/relay-call.ts'),
  ]);
  let finish: (refused: string | null) => void = () => {};
  const over = new Promise<string | null>((resolve) => {
    finish = resolve;
  });
  const quit = () => finish(null);
  const ends: (() => void)[] = [];

  const asker: Asker = createAsker({
    approve: options.approve,
    attended: live || options.json,
    clock,
    onAsked: (question) => view.asked(question),
    onAnswered: (question, answer) => view.answered(question, answer),
  });
  // Drawn from the start, before there is anything to write to.
  let written: () => string | null = () => null;
  const screen: Screen | null = options.json
    ? null
    : createScreen({
        context,
        clock,
        live,
        open: asker.open,
        settings: settings.get,
        prompt: () => written(),
      });
  const view: View = screen ?? createJsonView(context, clock);
  const log = createLog('WARNING', (text) => view.notice(text.replace(/^\S+ \S+ \[\w+\] /, '')));
  const messages = createMessagesBehind({ settings, clock, log, view });
  const prompt = createPrompt({
    messages,
    onChange: () => screen?.refresh(),
    print: (...lines) => screen?.print(...lines),
  });
  written = prompt.line;
  const media = createMediaClient({ callRelay, store: settings });
  const phone = createPhoneBehind({ settings, confirm: asker.confirm, clock, log, name: device.name, media });
  const rows = phone.rows((row) => view.command(row));
  const link: Link = createLink({
    dial,
    store: settings,
    clock,
    log,
    device,
    phone: phone.phone,
    channels: { proactive: messages.channel },
    onState(state) {
      view.state(state);
      if (state.name === 'unpaired') finish(state.reason ?? 'no reason given');
    },
    onAnswer: (answered) => view.command(rows.of(answered)),
    onNotice: (text) => view.notice(text),
  });

  try {
    ends.push(
      onSignals(quit, context),
      settings.onChange((now) => view.settings(now)),
      rows.end,
      messages.close,
    );
    if (live && screen) {
      const failed = (error: unknown) => view.notice(`the settings cannot be stored: ${describeError(error)}`);
      const input = context.stdin;
      ends.push(
        readKeys({
          input,
          screen,
          asker,
          settings,
          messages,
          prompt,
          clock,
          reconnect: () => link.start(),
          quit,
          onFailure: failed,
        }),
      );
    } else if (options.json) {
      const notice = (text: string) => view.notice(text);
      ends.push(readScript({ input: context.stdin, asker, settings, messages, clock, notice, quit }));
    }
    view.settings(settings.get());
    link.start();
    return await over;
  } finally {
    for (const end of ends) end();
    asker.close();
    await link.stop();
    phone.phone.close();
    view.close();
  }
}

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/**
 * Ends on a signal and what a test gives instead, and when nobody reads what is shown any more: a phone is not to act
 * unseen. A second signal ends the process at once.
 */
function onSignals(quit: () => void, { stop, stdout }: CommandContext): () => void {
  for (const signal of SIGNALS) process.once(signal, quit);
  stdout.on?.('error', quit);
  stop?.addEventListener('abort', quit);
  if (stop?.aborted) quit();
  return () => {
    for (const signal of SIGNALS) process.off(signal, quit);
    stdout.off?.('error', quit);
    stop?.removeEventListener('abort', quit);
  };
}
