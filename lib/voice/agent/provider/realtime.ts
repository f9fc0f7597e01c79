import { describeError, RelayError } from '../../../errors.ts';
import { upstreamReason } from '../../../host/upstream.ts';
import { type DialUpstream, type UpstreamSocket, UpstreamSocketError } from '../../../host/upstream-socket.ts';
import { base64 } from '../../../kit/bytes.ts';
import type { Clock } from '../../../kit/clock.ts';
import type { JsonObject } from '../../../kit/json.ts';
import { withTimeout } from '../../../kit/timeouts.ts';
import { type Credential, keyNames, type VoiceCredentials } from '../../credentials.ts';
import { noServer } from '../../streaming/call.ts';
import { dialRealtime } from '../../streaming/realtime-connection.ts';
import { createResampler, type Resampler } from '../../streaming/resample.ts';
import { createNormalizer, isExpiry, OPTIONAL_MESSAGE, SETTINGS_MESSAGE } from './normalize.ts';
import type { ConnectProvider, ProviderEvent, ProviderOptions, ProviderSession } from './provider.ts';

/** Milliseconds; the phone waits for 17 seconds. */
const CONNECT_TIMEOUT = 12_000;
/** Milliseconds in which a provider confirms the settings (contract 06 §6.9). */
const SETTINGS_TIMEOUT = 5000;
const PING_INTERVAL = 20_000;
/** Maximum unsent bytes: about four minutes of audio. */
const MAX_UNSENT = 16 * 1024 * 1024;
/** Bytes of audio in one message. */
const MAX_APPEND = 1024 * 1024;

/** The differences between the providers. */
export interface Dialect {
  /** Id in the registry. */
  provider: string;
  /** In errors, before `Realtime`. */
  label: string;
  /** Its only sample rate. */
  sampleRate?: number;
  /** `session` of the first message. */
  session(options: ProviderOptions, tools: readonly JsonObject[]): JsonObject;
  /** True if its history keeps all of an answer that was cut. */
  ignoresTruncation?: boolean;
  /** A message that has a text spoken word for word, without a `response.create`. */
  exactText?(text: string): JsonObject;
}

export interface RealtimeProviderDeps {
  dialUpstream: DialUpstream;
  clock: Clock;
  credentials: Pick<VoiceCredentials, 'streaming' | 'redact'>;
}

/** A provider that speaks the realtime protocol which OpenAI and xAI share (contract 06 §9). */
export const createRealtimeProvider = (dialect: Dialect, deps: RealtimeProviderDeps): ConnectProvider =>
  async function connect(options, onEvent) {
    const { clock } = deps;
    const end = new AbortController();
    const abort = () => end.abort();
    options.signal.addEventListener('abort', abort);
    const onTimeout = () => {
      end.abort();
      if (options.signal.aborted) throw options.signal.reason;
      throw new RelayError('gateway-timeout', `${dialect.label} Realtime did not answer within 12 seconds`);
    };
    try {
      return await withTimeout(
        { clock, timeout: CONNECT_TIMEOUT, signal: options.signal },
        openSession(dialect, deps, { ...options, signal: end.signal }, onEvent),
        onTimeout,
      );
    } catch (error) {
      options.signal.removeEventListener('abort', abort);
      throw error;
    }
  };

/** Key and URL of the provider. */
async function credentialOf(
  { provider, label }: Dialect,
  { oauthPath, servers }: ProviderOptions,
  { credentials }: RealtimeProviderDeps,
): Promise<Credential> {
  const credential = await credentials.streaming(provider, oauthPath, servers);
  if (credential) return credential;
  if (provider === 'local_realtime') throw new RelayError('unavailable', noServer(provider));
  const names = keyNames(provider).join(', ');
  throw new RelayError('unavailable', `${label} Realtime auth is not configured: set one of ${names}`);
}

async function openSession(
  dialect: Dialect,
  deps: RealtimeProviderDeps,
  options: ProviderOptions,
  onEvent: (event: ProviderEvent) => void,
): Promise<ProviderSession> {
  const { label } = dialect;
  const { model, sampleRate, headers, signal } = options;
  const redact = (text: string): string => deps.credentials.redact(text, Object.values(headers ?? {}));
  if (dialect.sampleRate !== undefined && sampleRate !== dialect.sampleRate) {
    const rates = `a sample rate of ${dialect.sampleRate} Hz, not ${sampleRate}`;
    throw new RelayError('invalid', `${label} Realtime supports only ${rates}`);
  }
  const { secret, baseUrl, source } = await credentialOf(dialect, options, deps);
  const normalizer = createNormalizer(label, redact, deps.clock.now);
  /** Why the relay itself drops the connection. */
  let failure: string | undefined;
  let isOver = false;
  let socket: UpstreamSocket | undefined;
  let cancelWait = () => {};
  /** Sends the settings again, without the optional ones. */
  let withoutTuning: (() => void) | undefined;

  function over(): void {
    isOver = true;
    cancelWait();
  }

  function report(event: ProviderEvent): void {
    if (!isOver) onEvent(event);
  }

  function received(text: string): void {
    for (const event of normalizer.read(text)) {
      if (event.type === 'settingsRefused' && withoutTuning) {
        // An optional setting may be at fault, so the session continues without all of them.
        withoutTuning();
        withoutTuning = undefined;
        report({ type: 'notice', message: event.message });
      } else report(event);
    }
    if (normalizer.isConfigured) cancelWait();
    // The provider's own close may take a while, or never come.
    if (normalizer.isExpired) socket?.close(1000);
  }

  function closed({ code, reason }: { code: number; reason: string }): void {
    const idle = failure === undefined && (normalizer.isExpired || isExpiry(reason));
    const why = failure ?? `${label} Realtime closed the connection (${code}${reason && `: ${reason}`})`;
    report({ type: 'closed', idle, message: redact(why) });
    over();
  }

  try {
    const target = { url: baseUrl, secret, model, headers, signal };
    socket = await dialRealtime(
      deps.dialUpstream,
      { ...target, connectTimeout: CONNECT_TIMEOUT, pingInterval: PING_INTERVAL },
      { message: received, closed },
    );
  } catch (error) {
    throw refusal(error, label, source, redact);
  }
  signal.addEventListener('abort', over);
  const { tuning = {} } = options;
  if (Object.keys(tuning).length > 0) {
    withoutTuning = () => sendSettings(socket as UpstreamSocket, dialect, { ...options, tuning: {} });
  }
  const session = sessionOn(socket, dialect, options, {
    overflowed() {
      failure = `${label} Realtime does not take the audio as fast as it comes`;
      socket?.terminate();
    },
    closed: over,
    committed: normalizer.committed,
  });
  if (!isOver && !normalizer.isConfigured) {
    cancelWait = deps.clock.after(SETTINGS_TIMEOUT, () => {
      const seconds = SETTINGS_TIMEOUT / 1000;
      const message = `${label} Realtime did not confirm the settings of the session within ${seconds} seconds`;
      report({ type: 'settingsRefused', setting: 'session', message });
    });
  }
  return session;
}

/** Describes why a provider cannot be connected, in words that clients know (contract 06 §1). */
function refusal(error: unknown, label: string, source: string, redact: (text: string) => string): RelayError {
  const { status } = error instanceof UpstreamSocketError ? error : { status: undefined };
  if (status === 401 || status === 403) {
    const message = `${label} Realtime rejected the relay auth (HTTP ${status}, key from ${source})`;
    return new RelayError('bad-gateway', message, { cause: error });
  }
  const reason = error instanceof RelayError ? describeError(error) : upstreamReason(error);
  return new RelayError('bad-gateway', redact(`${label} Realtime cannot be reached: ${reason}`), { cause: error });
}

const playedNote = (transcript: string): string =>
  transcript === ''
    ? 'I interrupted you before I heard anything of your last answer.'
    : `I interrupted you, and have heard of your last answer only: ${transcript}`;

interface SessionEvents {
  /** Too much is waiting to be sent. */
  overflowed(): void;
  /** An utterance is being committed. */
  committed(): void;
  closed(): void;
}

function sendSettings(socket: UpstreamSocket, dialect: Dialect, options: ProviderOptions): void {
  const tools = options.tools.map((tool) => ({ type: 'function', ...tool }));
  const session = dialect.session(options, tools);
  socket.send(JSON.stringify({ type: 'session.update', event_id: SETTINGS_MESSAGE, session }));
}

function sessionOn(
  socket: UpstreamSocket,
  dialect: Dialect,
  options: ProviderOptions,
  events: SessionEvents,
): ProviderSession {
  /** The resampler of the utterance that is being sent. */
  let resampler: { rate: number; resample: Resampler } | undefined;
  let hasAudio = false;
  let truncations = 0;

  function send(message: JsonObject): void {
    if (socket.unsent() > MAX_UNSENT) events.overflowed();
    else socket.send(JSON.stringify(message));
  }

  const create = (item: JsonObject) => send({ type: 'conversation.item.create', item });
  const addMessage = (role: string, type: string, text: string) =>
    create({ type: 'message', role, content: [{ type, text }] });

  function endUtterance(): void {
    resampler = undefined;
    hasAudio = false;
  }

  sendSettings(socket, dialect, options);

  return {
    sendAudio(pcm, rate) {
      if (resampler?.rate !== rate) resampler = { rate, resample: createResampler(rate, options.sampleRate) };
      const audio = resampler.resample(pcm);
      for (let at = 0; at < audio.length; at += MAX_APPEND) {
        hasAudio = true;
        send({ type: 'input_audio_buffer.append', audio: base64(audio.subarray(at, at + MAX_APPEND)) });
      }
    },
    commitAudio() {
      if (hasAudio) {
        events.committed();
        send({ type: 'input_audio_buffer.commit' });
      }
      endUtterance();
    },
    clearAudio() {
      send({ type: 'input_audio_buffer.clear' });
      endUtterance();
    },
    sendText: (text) => addMessage('user', 'input_text', text),
    cancelResponse: () => send({ type: 'response.cancel' }),
    sendToolResult: (callId, result) =>
      create({ type: 'function_call_output', call_id: callId, output: JSON.stringify(result) }),
    appendContext: (role, text) => addMessage(role, role === 'assistant' ? 'output_text' : 'input_text', text),
    truncate(itemId, contentIndex, audioEndMs, transcript) {
      send({
        type: 'conversation.item.truncate',
        // The provider may have forgotten the item, or not support the message.
        event_id: `${OPTIONAL_MESSAGE}${++truncations}`,
        item_id: itemId,
        content_index: contentIndex,
        audio_end_ms: Math.max(0, Math.floor(audioEndMs)),
      });
      if (dialect.ignoresTruncation) addMessage('user', 'input_text', playedNote(transcript));
    },
    requestResponse({ instructions, exactText } = {}) {
      if (exactText !== undefined && dialect.exactText) send(dialect.exactText(exactText));
      else send({ type: 'response.create', ...(instructions !== undefined && { response: { instructions } }) });
    },
    pause: () => socket.pause(),
    resume: () => socket.resume(),
    close() {
      events.closed();
      socket.close(1000);
    },
  };
}
