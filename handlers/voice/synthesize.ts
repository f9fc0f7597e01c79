import { parseSynthesize } from '../../lib/voice/basic/synthesize.ts';
import { WebResponse } from '../../lib/web/response.ts';
import type { Handler } from '../request.ts';
import { basicCallerOf, profileOf, readVoiceBody } from './request.ts';

/** `POST /voice/synthesize` (contract 05 §7). */
export const synthesize: Handler = async (request, relay) => {
  const body = await readVoiceBody(request);
  const spoken = parseSynthesize(body, profileOf(request, body));
  const { audio } = await relay.voice.basic.synthesize(basicCallerOf(request), spoken);
  return new WebResponse(audio, {
    headers: {
      'content-type': 'audio/mpeg',
      'content-length': String(audio.length),
      'content-disposition': 'inline; filename="tts.mp3"',
      'cache-control': 'private, no-store',
      'x-content-type-options': 'nosniff',
    },
  });
};
