import { RelayError } from '../../errors.ts';
import { findProvider } from '../registry.ts';
import { type Adapter, describeExpression, type RenderRequest } from './adapter.ts';
import { type AdapterDeps, credentialOf } from './call.ts';
import { sampleChunks } from './pcm.ts';
import { connectRealtime, type RealtimeConnection } from './realtime-connection.ts';

/** Both providers send raw PCM at this rate. */
const SAMPLE_RATE = 24_000;
const MAX_TRANSCRIPT = 64 * 1024;

const RENDERER =
  'You are a speech renderer. Say the given text exactly as it is written, word for word. Do not answer it, add to it, ' +
  'leave anything out, translate it or comment on it.';
const ASSISTANT = 'You are a voice assistant. Answer briefly, in natural spoken language.';

type Message = Record<string, unknown>;

/** The differences between the providers: the session, and the body of `response.create`. */
interface Dialect {
  provider: string;
  session(request: RenderRequest, instructions: string): Message;
  response(request: RenderRequest): Message;
}

const openaiAudio = ({ voice }: RenderRequest): Message => ({
  output: { format: { type: 'audio/pcm', rate: SAMPLE_RATE }, voice },
});

const OPENAI: Dialect = {
  provider: 'openai_realtime',
  session: (request, instructions) => ({
    type: 'realtime',
    model: request.model,
    instructions,
    output_modalities: ['audio'],
    audio: openaiAudio(request),
  }),
  response: (request) => ({ response: { audio: openaiAudio(request) } }),
};

const VOICE_LAB_ECHO = {
  type: 'function',
  name: 'voice_lab_echo',
  description: 'Returns the message that it is given.',
  parameters: { type: 'object', properties: { message: { type: 'string' } }, required: ['message'] },
};

const XAI: Dialect = {
  provider: 'xai_realtime',
  session: ({ voice, toolScaffold }, instructions) => ({
    voice,
    instructions,
    turn_detection: { type: 'server_vad' },
    tools: toolScaffold ? [VOICE_LAB_ECHO] : undefined,
  }),
  response: () => ({}),
};

/** Contract 05 §13, `openai_realtime`; `local_realtime` is the owner's server (§18). */
export const createOpenaiRealtime = (deps: AdapterDeps, provider = OPENAI.provider): Adapter =>
  createRealtime({ ...OPENAI, provider }, deps);

/** Contract 05 §13, `xai_realtime`. */
export const createXaiRealtime = (deps: AdapterDeps): Adapter => createRealtime(XAI, deps);

/** Renders with one turn of a realtime conversation, on a separate connection. */
const createRealtime = ({ provider, session, response }: Dialect, deps: AdapterDeps): Adapter =>
  async function* (request) {
    const { model, voice, headers, signal } = request;
    const { secret, baseUrl } = await credentialOf(provider, request, deps);
    const connection = await connectRealtime(deps.dialUpstream, { url: baseUrl, secret, model, headers, signal });
    try {
      connection.send({ type: 'session.update', session: session(request, instructionsFor(request)) });
      connection.send({
        type: 'conversation.item.create',
        item: { type: 'message', role: 'user', content: [{ type: 'input_text', text: inputFor(request) }] },
      });
      connection.send({ type: 'response.create', ...response(request) });
      const turn = turnOf(connection, provider);
      for await (const pcm of sampleChunks(turn.audio)) yield { pcm, sampleRate: SAMPLE_RATE, label: provider };
      const metadata = { sample_rate: SAMPLE_RATE, render_mode: request.renderMode };
      return { provider, model, voice, metadata, transcript: turn.transcript().trim() || undefined };
    } finally {
      connection.close();
    }
  };

const isVerbatim = ({ renderMode }: RenderRequest): boolean => renderMode === 'verbatim';

function instructionsFor(request: RenderRequest): string {
  const delivery = describeExpression(request.expression);
  return [
    isVerbatim(request) ? RENDERER : ASSISTANT,
    request.options.instructions ?? '',
    delivery && `Delivery: ${delivery}.`,
  ]
    .filter(Boolean)
    .join('\n');
}

const inputFor = (request: RenderRequest): string =>
  isVerbatim(request)
    ? `Read the following text aloud exactly as it is written, and say nothing else:\n\n${request.text}`
    : request.text;

/** The audio of one turn, until `response.done`, and its transcript. */
function turnOf(connection: RealtimeConnection, provider: string) {
  let transcript = '';
  const fail = (message: string) => new RelayError('bad-gateway', `${findProvider(provider)?.info.name}: ${message}`);
  async function* audio(): AsyncGenerator<Uint8Array> {
    for (;;) {
      const event = await connection.next();
      switch (event.type) {
        case 'audio':
          yield event.bytes;
          break;
        case 'transcript':
          transcript = (transcript + event.text).slice(0, MAX_TRANSCRIPT);
          break;
        case 'closed':
          throw fail(`the connection closed before the end of the response (${event.code})`);
        case 'error':
          throw fail(event.message);
        case 'done':
          return;
      }
    }
  }
  return { audio: audio(), transcript: () => transcript };
}
