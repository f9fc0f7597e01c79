import type {
  RealtimeError,
  RealtimeResponse,
  RealtimeResponseUsage,
  RealtimeServerEvent,
} from 'openai/resources/realtime/realtime';
import type { Provider } from './provider.ts';
import type { ProviderSocket } from './provider-socket.ts';

/** An event with some of the members that the SDK has for its type; providers leave out others. */
type Sent<T = RealtimeServerEvent> = T extends { type: infer K } ? { type: K } & Partial<Omit<T, 'type'>> : never;

/** A function that the provider calls in a response. */
export interface ScriptedCall {
  callId: string;
  name: string;
  args?: object;
}

/** One response of the provider. */
export interface ScriptedTurn {
  text?: string;
  /** Parts of the audio. */
  audio?: Uint8Array[];
  calls?: ScriptedCall[];
  /** Sent as `response.done.response.status`. */
  status?: RealtimeResponse['status'];
  /** Sent as `response.done.response.usage`. */
  usage?: RealtimeResponseUsage;
  /** Ends only by `finish`, or by a cancellation. */
  isOpen?: boolean;
}

/** One conversation with a provider that follows a script, and how a test goes beyond it. */
export interface Conversation {
  socket: ProviderSocket;
  /** Bytes of audio since the last commit or clear. */
  readonly heard: number;
  /** Messages of a type so far. */
  sent(type: string): Record<string, unknown>[];
  /** Starts a response that nobody asked for; several may be open. Returns its id. */
  start(turn: ScriptedTurn): string;
  /** Sends events of a response. */
  say(responseId: string, text: string): void;
  play(responseId: string, pcm: Uint8Array): void;
  call(responseId: string, call: ScriptedCall): void;
  finish(responseId: string, status?: RealtimeResponse['status']): void;
  transcribe(text: string): void;
  /** Sends an `error` event. */
  fail(error: Partial<RealtimeError>): void;
  /** Resets the connection. */
  reset(): void;
}

export interface Script {
  /** Responses to requests, in order; then `Okay.`. */
  turns: ScriptedTurn[];
  /** Transcripts of utterances, in order; null fails, and without one an utterance is not transcribed. */
  transcripts: (string | null)[];
  conversations: Conversation[];
}

const isEqualType = (type: string) => (message: Record<string, unknown>) => message.type === type;

/** Lets the fake provider behave like OpenAI and xAI do: session, transcripts, responses, cancellation, truncation. */
export function scriptRealtime(
  provider: Pick<Provider, 'onSocket'>,
  { turns = [], transcripts = [] }: Partial<Pick<Script, 'turns' | 'transcripts'>> = {},
): Script {
  const script: Script = { turns, transcripts, conversations: [] };
  provider.onSocket((socket) => void script.conversations.push(converse(socket, script)));
  return script;
}

function converse(socket: ProviderSocket, script: Script): Conversation {
  let heard = 0;
  let responses = 0;
  let items = 0;
  /** Ids of the items by the responses that are open, the latest last. */
  const open = new Map<string, string>();
  const send = (message: Sent) => void socket.send(message);

  function transcribe(text: string): void {
    const item_id = `utterance-${++items}`;
    send({ type: 'conversation.item.input_audio_transcription.delta', item_id, delta: text });
    send({ type: 'conversation.item.input_audio_transcription.completed', item_id, transcript: text });
  }

  function start(turn: ScriptedTurn): string {
    const id = `resp-${++responses}`;
    open.set(id, `item-${id}`);
    send({ type: 'response.created', response: { id, status: 'in_progress' } });
    if (turn.text !== undefined) say(id, turn.text);
    for (const pcm of turn.audio ?? []) play(id, pcm);
    for (const scripted of turn.calls ?? []) call(id, scripted);
    if (!turn.isOpen) finish(id, turn.status, turn.usage);
    return id;
  }

  const say = (id: string, text: string) =>
    send({ type: 'response.output_audio_transcript.delta', response_id: id, item_id: open.get(id), delta: text });

  const play = (id: string, pcm: Uint8Array) =>
    send({
      type: 'response.output_audio.delta',
      response_id: id,
      item_id: open.get(id),
      content_index: 0,
      delta: Buffer.from(pcm).toString('base64'),
    });

  function call(id: string, { callId, name, args = {} }: ScriptedCall): void {
    const item = { id: `item-${callId}`, type: 'function_call' as const, call_id: callId, name };
    const fields = { response_id: id, item_id: item.id, call_id: callId, arguments: JSON.stringify(args) };
    send({
      type: 'response.output_item.added',
      response_id: id,
      item: { ...item, status: 'in_progress', arguments: '' },
    });
    send({ type: 'response.function_call_arguments.done', ...fields });
    const whole = { ...item, status: 'completed' as const, arguments: fields.arguments };
    send({ type: 'response.output_item.done', response_id: id, item: whole });
  }

  function finish(id: string, status: RealtimeResponse['status'] = 'completed', usage?: RealtimeResponseUsage): void {
    if (!open.has(id)) return;
    send({ type: 'response.output_audio.done', response_id: id, item_id: open.get(id) });
    open.delete(id);
    send({ type: 'response.done', response: { id, status, output: [], usage } });
  }

  function respond(): void {
    // As the real ones do.
    if (open.size > 0)
      fail({ code: 'conversation_already_has_active_response', message: 'active response in progress' });
    else start(script.turns.shift() ?? { text: 'Okay.' });
  }

  const fail = (error: Partial<RealtimeError>) =>
    send({ type: 'error', event_id: 'event-1', error: { type: 'invalid_request_error', message: '', ...error } });

  socket.onMessage((message) => {
    switch (message.type) {
      case 'session.update':
        return send({
          type: 'session.updated',
          session: { type: 'realtime', model: socket.query.get('model') ?? undefined },
        });
      case 'input_audio_buffer.append':
        heard += Buffer.from(String(message.audio), 'base64').length;
        return;
      case 'input_audio_buffer.clear':
        heard = 0;
        return;
      case 'input_audio_buffer.commit': {
        if (heard === 0) return fail({ code: 'input_audio_buffer_commit_empty', message: 'buffer too small' });
        heard = 0;
        const transcript = script.transcripts.shift();
        if (transcript === null) send({ type: 'conversation.item.input_audio_transcription.failed' });
        else if (transcript !== undefined) transcribe(transcript);
        return;
      }
      case 'response.create':
        return respond();
      case 'conversation.item.create': {
        const { type, content } = message.item as { type: string; content?: { text: string }[] };
        if (type === 'force_message') start({ text: content?.[0]?.text, audio: [new Uint8Array(480)] });
        return;
      }
      case 'response.cancel': {
        const id = [...open.keys()].at(-1);
        if (id === undefined) fail({ code: 'response_cancel_not_active', message: 'no active response found' });
        else finish(id, 'cancelled');
        return;
      }
      case 'conversation.item.truncate':
        return send({ ...(message as object), type: 'conversation.item.truncated' });
    }
  });

  return {
    socket,
    get heard() {
      return heard;
    },
    sent: (type) => socket.messages.filter(isEqualType(type)),
    start,
    say,
    play,
    call,
    finish,
    transcribe,
    fail,
    reset: () => socket.cut(),
  };
}
