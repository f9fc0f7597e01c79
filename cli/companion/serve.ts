import { basename } from 'node:path';
import type { DeviceFacts } from '../../lib/companion/link/auth.ts';
import { createBridge } from '../../lib/companion/link/commands.ts';
import { createFreezeSwitch } from '../../lib/companion/link/freeze.ts';
import { createLink } from '../../lib/companion/link/link.ts';
import { createMediaClient, MAX_FILE_BYTES } from '../../lib/companion/link/media.ts';
import { takeHome, withMailbox, withRoutes } from '../../lib/companion/link/new-routes.ts';
import { createSealing } from '../../lib/companion/link/sealing.ts';
import { createMessages } from '../../lib/companion/messages.ts';
import type { SettingsChange } from '../../lib/companion/safety-settings.ts';
import { createTriggerRunner } from '../../lib/companion/trigger-runner.ts';
import { describeError } from '../../lib/errors.ts';
import { deferred } from '../../lib/kit/deferred.ts';
import { createLog } from '../../lib/log.ts';
import { guessType } from '../../lib/media/content-types.ts';
import type { CommandContext } from '../output.ts';
import { onSignals } from '../signals.ts';
import { noticeText } from './grants.ts';
import { readKeys } from './keys.ts';
import { openNetwork } from './network.ts';
import { createSimulatedPhone } from './phone.ts';
import { createLinePrompt } from './prompt.ts';
import { type ApprovalMode, createQuestions } from './questions.ts';
import { readScript } from './script.ts';
import type { Companion } from './settings.ts';
import { createTerminalView } from './terminal-view.ts';
import { createJsonView, type View } from './view.ts';

export interface RunOptions {
  approve: ApprovalMode;
  json: boolean;
  /** Settings to apply before connecting. */
  change: SettingsChange;
}

export interface ServeDeps {
  options: RunOptions;
  companion: Companion;
  context: CommandContext;
  device: DeviceFacts;
}

/** Runs the phone and its link until told to quit (null), or until the relay refuses this device (its reason). */
export async function serve({ options, companion, context, device }: ServeDeps): Promise<string | null> {
  const { settings, clock } = companion;
  const live = !options.json && context.stdin.isTTY === true && context.stdout.isTTY === true;
  const { dial, callRelay, isSignedBy } = await openNetwork(context);
  const finished = deferred<string | null>();
  const quit = () => finished.resolve(null);

  const questions = createQuestions({
    approve: options.approve,
    attended: live || options.json,
    clock,
    onAsked: (question) => view.asked(question),
    onAnswered: (question, outcome) => view.answered(question, outcome),
  });
  const notice = (text: string) => view.notice(text);
  const log = createLog('WARNING', (text) => notice(text.replace(/^\S+ \S+ \[\w+\] /, '')));
  const messages = createMessages({
    settings,
    clock,
    log,
    onMessage: (message, surface) => view.message(message, surface),
    onBacklog: (count) => view.backlog(count),
    onAcknowledged: (reply, lateReason) => triggers.acknowledged(reply.message_id) || view.replied(reply, lateReason),
    onClosed: (message, reason) => view.closed(message, reason),
    onSubscribed: (isSubscribed) => view.subscribed(isSubscribed),
  });
  const prompt = createLinePrompt(() => terminal?.refresh());
  // Draws its status line at once.
  const terminal = options.json
    ? null
    : createTerminalView({
        context,
        clock,
        live,
        open: questions.open,
        settings: settings.get,
        prompt: prompt.line,
        question: messages.question,
      });
  const view: View = terminal ?? createJsonView(context, clock);
  const sealing = createSealing({ store: settings, log, isSignedBy });
  const media = createMediaClient({ callRelay, store: settings, clock, sealing });
  const simulated = (context.createPhone ?? createSimulatedPhone)({
    settings,
    confirm: questions.confirm,
    clock,
    log,
    name: device.name,
    media,
  });
  const { phone, screen, post, receiveSms, appName } = simulated;
  const triggers = createTriggerRunner({
    settings,
    confirm: questions.confirm,
    sendToAgent: (text, metadata) => messages.reply({ text, chatId: null, metadata }).message_id,
    appName,
    clock,
    log,
    onActivity: (row) => view.triggered(row),
  });
  async function upload(path: string): Promise<void> {
    try {
      const bytes = await companion.host.files.read(path, MAX_FILE_BYTES + 1);
      if (!bytes) throw new Error('there is no such file');
      if (bytes.length > MAX_FILE_BYTES) throw new Error('the file is too large');
      const answer = await media.upload({ name: basename(path), type: guessType(path), bytes });
      view.uploaded?.(path, 'token' in answer ? answer : { error: `the relay answered ${answer.status}` });
    } catch (error) {
      view.uploaded?.(path, { error: describeError(error) });
    }
  }
  const freeze = createFreezeSwitch({ callRelay, store: settings, clock, onChange: (state) => view.frozen(state) });
  const rows = simulated.trackRows((row) => view.command(row));
  const link = createLink({
    withRoutes,
    withMailbox,
    sealing: () => sealing,
    takeHome,
    dial,
    callRelay,
    store: settings,
    clock,
    log,
    device,
    bridge: createBridge({ phone, clock, onAnswer: (answered) => view.command(rows.rowOf(answered)) }),
    channels: { proactive: messages.channel, system: freeze.channel },
    onState(state) {
      view.state(state);
      if (state.name === 'unpaired') finished.resolve(state.reason ?? 'no reason given');
    },
    onNotice: (text, code) => notice(noticeText(text, code, settings.pairing()?.grants)),
    isAttended: () => live,
  });

  const showScreen = () =>
    void screen(context.stdout.columns).then(
      (rows) => terminal?.print(...rows),
      (error) => notice(`cannot show the screen: ${describeError(error)}`),
    );

  const cleanups: (() => void)[] = [];
  try {
    cleanups.push(
      // A phone must not act unseen, so it ends with the reader of stdout.
      onSignals(quit, context),
      settings.onChange((now) => view.settings(now)),
      rows.stop,
      simulated.onNotification(triggers.posted),
      triggers.close,
      messages.close,
    );
    const input = context.stdin;
    if (live && terminal) {
      const reconnect = () => link.start();
      const onFailure = (error: unknown) => notice(`cannot store the settings: ${describeError(error)}`);
      const keys = { input, view: terminal, questions, settings, messages, prompt, freeze, clock };
      const onResize = () => terminal.refresh();
      context.stdout.on?.('resize', onResize);
      cleanups.push(readKeys({ ...keys, showScreen, receiveSms, reconnect, quit, onFailure }), () =>
        context.stdout.off?.('resize', onResize),
      );
    } else if (options.json) {
      cleanups.push(readScript({ input, questions, settings, messages, clock, post, upload, notice, quit }));
    }
    view.settings(settings.get());
    link.start();
    return await finished.promise;
  } finally {
    for (const cleanup of cleanups) cleanup();
    questions.close();
    await link.stop();
    phone.close();
    view.close();
  }
}
