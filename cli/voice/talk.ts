import type { Command } from 'cac';
import { createLines, type Lines } from '../lines.ts';
import { asRate, asText, flag, type Options, option } from '../options.ts';
import { type CommandContext, line, printable, printJson, quote, sentence, UsageError } from '../output.ts';
import { RELAY_OPTION } from '../remote-relay.ts';
import {
  type Audience,
  type Conversation,
  type ConversationRequest,
  durationOf,
  startConversation,
} from './conversation.ts';
import {
  CHUNK,
  MICROPHONE_RATE,
  type Microphone,
  openMicrophone,
  type Recording,
  readRecording,
} from './microphone.ts';
import { findPlayer, type Player } from './player.ts';
import { createProgress } from './progress.ts';
import { profileOption, Stopped, type VoiceRelay, withVoiceRelay } from './relay.ts';
import type { SpeechPart } from './speech.ts';
import { checkOut, writeOut } from './wav-output.ts';

/** Seconds, the maximum length of a conversation; providers allow an hour at most without a pause. */
const SESSION_TTL = 4 * 3600;
/** Bytes of speech that are stored for `--out`: about 90 minutes. */
const MAX_KEPT = 256 * 1024 * 1024;

/** `svc voice talk`: a conversation with the agent. */
export function define(command: Command): void {
  command
    .option('--mic', 'speak: Enter begins an utterance, and Enter sends it; recorded with arecord')
    .option('--in <file>', 'send a WAV file (16-bit mono) as the only utterance')
    .option('--out <file>', 'write what the agent says to a WAV file')
    .option('--play', 'play what the agent says, with aplay, paplay, ffplay or sox; the default with --mic')
    .option('--session <id>', 'continue a chat session')
    .option('--final-answer-only', 'no words before the answer is there')
    .option('--profile <name>', "talk to one of the agent's profiles")
    .option('--provider <id>', 'another provider than in the settings: openai_realtime, xai_realtime, stub')
    .option('--model <id>', 'another model')
    .option('--voice <id>', 'another voice')
    .option('--rate <hertz>', 'another sample rate')
    .option(...RELAY_OPTION)
    .option('--json', 'print each event as one line of JSON')
    .example((name) => `${name} talk                      # type; /cancel, /again and /quit are commands`)
    .example((name) => `${name} talk --mic                # speak`)
    .example((name) => `echo "What is on today?" | ${name} talk --out answer.wav`)
    .example((name) => `${name} talk --in question.wav --json`)
    .example((name) => `echo "Hello" | ${name} talk --provider stub   # needs no key of a provider`)
    .action(run);
}

interface Setup {
  request: ConversationRequest;
  recording?: Recording;
  isSpoken: boolean;
  out?: string;
  player?: Player;
  isJson: boolean;
  context: CommandContext;
}

/** Parts that a conversation needs. */
interface Stage extends Setup {
  sound: Sound;
  say(who: string, text: string): void;
  /** Prints a line for the person at the terminal, on a separate line. */
  printLine(text: string): void;
  /** Ends the line of a question that Ctrl-D left open. */
  endQuestion(): void;
}

async function run(options: Options, context: CommandContext): Promise<void> {
  const setup = await setupOf(options, context);
  const lines = createLines(context.stdin);
  let hasBegun = false;
  const converseWith = async (relay: VoiceRelay) => {
    hasBegun = true;
    await talk(relay, setup, lines);
  };
  try {
    await withVoiceRelay(options, context, ['voice:realtime'], converseWith, SESSION_TTL);
  } catch (error) {
    // A person ends a conversation with Ctrl-C; a script should see that it was stopped.
    if (!(hasBegun && context.stdin.isTTY && error instanceof Stopped)) throw error;
  } finally {
    setup.player?.stop();
    lines.end();
  }
}

/** Reads the options, and fails before anything is said that could not be sent or stored. */
async function setupOf(options: Options, context: CommandContext): Promise<Setup> {
  const [path, out] = [option(options, '--in', asText), option(options, '--out', asText)];
  const isSpoken = flag(options, '--mic');
  if (isSpoken && path !== undefined) throw new UsageError('--mic and --in exclude each other');
  if (isSpoken && !context.stdin.isTTY) throw new UsageError('--mic needs a terminal, where Enter begins an utterance');
  if (out !== undefined) await checkOut(out);
  const isPlayed = flag(options, '--play') || (isSpoken && out === undefined);
  return {
    request: {
      profile: profileOption(options),
      provider: option(options, '--provider', asText),
      model: option(options, '--model', asText),
      voice: option(options, '--voice', asText),
      sample_rate: option(options, '--rate', asRate),
      chat_session_id: option(options, '--session', asText),
      final_answer_only: flag(options, '--final-answer-only') || undefined,
    },
    recording: path === undefined ? undefined : await readRecording(path),
    isSpoken,
    out,
    player: isPlayed ? await findPlayer(context.env) : undefined,
    isJson: flag(options, '--json'),
    context,
  };
}

async function talk(relay: VoiceRelay, setup: Setup, lines: Lines): Promise<void> {
  const { context, isJson, request, out, player } = setup;
  const progress = createProgress(context, isJson);
  const sound = createSound(player);
  let shown = '';
  const audience: Audience = {
    event: (event) => isJson && printJson(context.stdout, event),
    transcript: (text) => say('You', text),
    answer: (text) => say('Agent', text),
    audio: sound.hear,
    progress(text) {
      if (text !== '' && text !== shown) progress.step(text);
      shown = text;
    },
    confirmation({ message }) {
      progress.end();
      if (!isJson) quote(context.stderr, `The agent asks: ${message}`);
      if (canAnswer(setup)) context.stderr.write(isJson ? '' : 'Allow it? [y/n] ');
      else conversation.decide('deny');
    },
    unplayed: sound.unplayed,
    connection: (state, reason) =>
      progress.step(state === 'lost' ? `The connection was lost: ${printable(reason ?? '')}` : 'Connected again.'),
  };
  function say(who: string, text: string): void {
    progress.end();
    if (!isJson) quote(context.stdout, `${who}: ${text}`);
  }
  function printLine(text: string): void {
    progress.end();
    sentence(context.stderr, text);
  }
  function endQuestion(): void {
    if (!isJson && !relay.signal.aborted) line(context.stderr);
  }
  function leave(): void {
    progress.end();
    // The terminal has shown ^C, perhaps after a question or a half-typed line.
    if (relay.signal.aborted && context.stderr.isTTY) context.stderr.write('\r\u001b[K');
  }

  progress.step('Beginning a conversation.');
  const { session, conversation, run } = await startConversation(relay, request, audience).catch((error) => {
    leave();
    throw error;
  });
  audience.event({ type: 'session', ...session });
  const ended = run();
  const spoken = converse(conversation, { ...setup, sound, say, printLine, endQuestion }, lines).then(() =>
    conversation.close(),
  );
  try {
    // A failure of either ends the other, since a session that is over has no use.
    await Promise.all([ended, Promise.race([spoken, ended])]);
    if (player) await player.finish();
  } finally {
    leave();
    spoken.catch(() => {});
    lines.end();
    if (out !== undefined) await sound.save(out);
  }
}

/** True if somebody can answer a confirmation: at a terminal, or with a line of stdin. */
const canAnswer = ({ recording, context }: Setup): boolean => recording === undefined || context.stdin.isTTY === true;

/** Sends a recording, or says to a person what to type. */
function begin(conversation: Conversation, { recording, isSpoken, context, isJson, printLine }: Stage): void {
  if (recording) {
    for (let at = 0; at < recording.pcm.length; at += CHUNK) {
      conversation.append(recording.pcm.subarray(at, at + CHUNK), recording.rate);
    }
    conversation.commit();
  } else if (context.stdin.isTTY && !isJson) {
    const how = isSpoken ? 'Press Enter to speak, and Enter again to send it.' : 'Type what you want to say.';
    printLine(`${how} /cancel stops the agent, /again repeats its last result, /quit ends the conversation.`);
  }
}

/** Says the given input, until the answers have arrived. */
async function converse(conversation: Conversation, setup: Stage, lines: Lines): Promise<void> {
  const { recording, isSpoken, context, say, endQuestion } = setup;
  begin(conversation, setup);
  const isAttended = context.stdin.isTTY === true;
  let microphone: Microphone | undefined;
  try {
    for (;;) {
      // A script talks in turns; a person may interrupt.
      if (!isAttended) await conversation.until(({ isTurn, confirmation }) => !isTurn || confirmation !== undefined);
      if (recording && !conversation.confirmation) {
        await conversation.until(({ isSettled, confirmation }) => isSettled || confirmation !== undefined);
        if (!conversation.confirmation) return;
      }
      const next = lines.next();
      // A recorder that fails ends the conversation at once, since the next Enter would send nothing.
      const text = await (microphone ? Promise.race([next, microphone.ended.then(() => undefined)]) : next);
      if (text === undefined && conversation.confirmation && isAttended) endQuestion();
      if (text === undefined || text === '/quit') break;
      if (conversation.confirmation) decide(conversation, text, setup);
      else if (text === '/cancel') conversation.cancel();
      else if (text === '/again') conversation.respeak();
      else if (text === '' && isSpoken) microphone = await toggle(conversation, microphone, setup);
      else if (text !== '') {
        if (!isAttended) say('You', printable(text));
        conversation.say(text);
      }
    }
    if (conversation.confirmation) conversation.decide('deny');
    if (!isAttended) await conversation.until(({ isSettled }) => isSettled);
  } finally {
    await microphone?.stop();
  }
}

function decide(conversation: Conversation, text: string, { context }: Setup): void {
  if (/^(?:y|yes|allow)$/i.test(text)) conversation.decide('allow_once');
  else if (/^(?:n|no|deny)$/i.test(text)) conversation.decide('deny');
  else context.stderr.write('Please answer y or n: ');
}

/** Starts an utterance, which interrupts the agent, or sends it. */
async function toggle(
  conversation: Conversation,
  microphone: Microphone | undefined,
  { context, sound, printLine }: Stage,
): Promise<Microphone | undefined> {
  if (microphone) {
    await microphone.stop();
    conversation.commit();
    return undefined;
  }
  if (conversation.isTurn) conversation.cancel();
  sound.interrupt();
  printLine('Recording. Press Enter to send it.');
  return openMicrophone(context.env, (pcm) => conversation.append(pcm, MICROPHONE_RATE));
}

type Sound = ReturnType<typeof createSound>;

/** The agent's speech: played if there is a player, and stored for `--out`. */
function createSound(player: Player | undefined) {
  const parts: Buffer[] = [];
  let bytes = 0;
  let sampleRate = 0;
  /** Time at which the player will have played everything, in ms of `performance`. */
  let playedAt = 0;
  return {
    hear(part: SpeechPart): void {
      sampleRate = part.sampleRate;
      bytes += part.pcm.length;
      if (bytes <= MAX_KEPT) parts.push(part.pcm);
      if (!player) return;
      player.play(part);
      playedAt = Math.max(playedAt, performance.now()) + durationOf(part);
    },
    /** Drops the rest. */
    interrupt(): void {
      player?.stop();
      playedAt = 0;
    },
    unplayed: (): number => Math.max(0, playedAt - performance.now()),
    async save(out: string): Promise<void> {
      if (parts.length > 0) await writeOut(out, parts, sampleRate);
    },
  };
}
