import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { SpeechCreateParams } from 'openai/resources/audio/speech';
import type { Transcription, TranscriptionCreateParams } from 'openai/resources/audio/transcriptions';
import type { Model } from 'openai/resources/models';
import { onTestFinished } from 'vitest';
import type { OnEnd } from '../fake-api-server.ts';
import { sinePcm, wavOf } from './audio.ts';
import { readForm } from './form.ts';

type Format = NonNullable<SpeechCreateParams['response_format']>;

/** How a server of the owner differs from OpenAI's own. */
export interface OwnServerOptions {
  /** Hertz of what it speaks. */
  rate?: number;
  /** Sent whatever is asked for, with a label that says so. */
  always?: Format;
  /** Replaces the content type of what it speaks. */
  label?: string;
  models?: string[];
  /** Voices that `/v1/audio/voices` lists; by default there is no such path, as with most of them. */
  voices?: string[];
  /** Answers 401 without this key. */
  key?: string;
  /** What it can do; both by default. */
  parts?: readonly ('tts' | 'stt')[];
  /** whisper.cpp: transcribes at `/inference`, and has no other path. */
  isWhisperCpp?: boolean;
  onEnd?: OnEnd;
}

/** What the server was asked for, as the SDK's types have it. */
export interface OwnServerCalls {
  speech: SpeechCreateParams[];
  transcriptions: (Omit<TranscriptionCreateParams, 'file'> & { fileName: string; content: Buffer })[];
  /** Method and path of each request, with the bearer that it had. */
  requests: { target: string; bearer: string | undefined }[];
}

const LABELS: Readonly<Record<Format, string>> = {
  aac: 'audio/aac',
  flac: 'audio/flac',
  mp3: 'audio/mpeg',
  opus: 'audio/opus',
  pcm: 'audio/pcm',
  wav: 'audio/wav',
};

/** Seconds of speech: a tenth for each character. */
export const spokenSeconds = (text: string): number => text.length / 10;

/**
 * A speech server as people run it at home, on loopback: the paths and bodies of OpenAI, with a tone for speech and a
 * transcript that says what was sent. Refuses what the SDK's types do not allow. Closed after the test.
 */
export async function startOwnServer(options: OwnServerOptions = {}) {
  const { onEnd = onTestFinished, rate = 24_000, key, parts = ['tts', 'stt'], isWhisperCpp = false } = options;
  const calls: OwnServerCalls = { speech: [], transcriptions: [], requests: [] };

  function speak(body: Buffer, response: ServerResponse): void {
    const params = JSON.parse(body.toString()) as SpeechCreateParams;
    const missing = (['input', 'model', 'voice'] as const).filter((name) => params[name] === undefined);
    if (missing.length > 0) {
      refuse(response, 422, `missing: ${missing.join(', ')}`);
      return;
    }
    calls.speech.push(params);
    const format = options.always ?? params.response_format ?? 'mp3';
    const pcm = sinePcm(spokenSeconds(params.input), rate);
    const bytes = format === 'wav' ? wavOf(pcm, rate) : format === 'pcm' ? pcm : Buffer.from('ID3 not really');
    response.writeHead(200, { 'content-type': options.label ?? LABELS[format] }).end(bytes);
  }

  function transcribe(request: IncomingMessage, body: Buffer, response: ServerResponse): void {
    const { fields, file } = formIn(request.headers['content-type'], body) ?? { fields: [], file: undefined };
    if (!file) {
      // whisper.cpp answers 200 to that.
      if (isWhisperCpp) json(response, 200, { error: "no 'file' field in the request" });
      else refuse(response, 422, 'missing: file');
      return;
    }
    const params = Object.fromEntries(fields) as unknown as TranscriptionCreateParams;
    if (params.model === undefined && !isWhisperCpp) {
      refuse(response, 422, 'missing: model');
      return;
    }
    calls.transcriptions.push({ ...params, fileName: file.filename, content: file.content });
    const answer: Pick<Transcription, 'text'> = { text: ` heard ${file.content.length} bytes` };
    if (params.response_format === 'text') response.writeHead(200, { 'content-type': 'text/plain' }).end(answer.text);
    else json(response, 200, answer);
  }

  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks);
    const target = `${request.method} ${request.url}`;
    const bearer = request.headers.authorization?.replace(/^Bearer /, '');
    calls.requests.push({ target, bearer });
    if (key !== undefined && bearer !== key) refuse(response, 401, `bad key ${bearer}`);
    else if (isWhisperCpp) {
      if (target === 'POST /inference') transcribe(request, body, response);
      else refuse(response, 404, 'File Not Found');
    } else if (target === 'GET /v1/models') {
      const data = (options.models ?? ['tts-1', 'whisper-1']).map(
        (id): Model => ({ id, object: 'model', created: 0, owned_by: 'me' }),
      );
      json(response, 200, { object: 'list', data });
    } else if (target === 'GET /v1/audio/voices' && options.voices) json(response, 200, { voices: options.voices });
    else if (target === 'POST /v1/audio/speech' && parts.includes('tts')) speak(body, response);
    else if (target === 'POST /v1/audio/transcriptions' && parts.includes('stt')) transcribe(request, body, response);
    else refuse(response, 404, 'Not Found');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onEnd(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { port, origin: `http://127.0.0.1:${port}`, url: `http://127.0.0.1:${port}/v1`, calls };
}

const json = (response: ServerResponse, status: number, body: object) =>
  void response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));

const refuse = (response: ServerResponse, status: number, message: string) =>
  json(response, status, { error: { message, type: 'invalid_request_error' } });

function formIn(contentType: string | undefined, body: Buffer) {
  try {
    return readForm(contentType, body);
  } catch {
    return undefined;
  }
}
