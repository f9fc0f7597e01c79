import { json } from '../../lib/web/json.ts';
import { chunksOf } from '../../lib/web/streams.ts';
import { hasGrant } from '../guards.ts';
import type { Handler } from '../request.ts';
import { basicCallerOf, profileOf } from './request.ts';

/** `POST /voice/transcribe` (contract 05 §6). */
export const transcribe: Handler = async (request, relay) => {
  const { headers } = request;
  const profile = profileOf(request);
  const length = headers.get('content-length');
  const clip = {
    contentType: headers.get('content-type'),
    contentLength: length === null ? null : Number(length),
    chunks: request.chunks?.() ?? chunksOf(request.body),
    isWelcome: () => hasGrant(request, relay, 'voice:stt'),
  };
  const { text, provider } = await relay.voice.basic.transcribe(basicCallerOf(request), clip, profile);
  return json({ success: true, text, provider, profile });
};
