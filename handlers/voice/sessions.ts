import { bearerOf, VOICE_PROTOCOL } from '../../lib/access/bearer.ts';
import type { Relay } from '../../lib/relay.ts';
import type { VoiceGrant, VoicePrincipal } from '../../lib/voice/principal.ts';
import { json } from '../../lib/web/json.ts';
import { voice } from '../guards.ts';
import { type Handler, pathParam, type RelayRequest } from '../request.ts';
import type { SocketRow } from '../sockets.ts';
import { profileOf, readVoiceBody } from './request.ts';

/** Sessions of one kind. */
type Kind = 'output' | 'lab' | 'agent';

/** Id of a session in a path, excluding the names of routes. */
const VOICE_SESSION = '(?!(config|providers|session)(/|$)):id';

const MAX_MESSAGE = 2 * 1024 * 1024;

/** The caller admitted by the guard `voice(grant)`. */
const callerOf = (request: RelayRequest): VoicePrincipal => request.voice as VoicePrincipal;

/** `POST` of a new session (contract 05 §12, §14, 06 §3.3). */
const createVoiceSession =
  (kind: Kind): Handler =>
  async (request, relay) => {
    const body = await readVoiceBody(request, { optional: true });
    const caller = {
      principal: callerOf(request),
      bearer: bearerOf(request.headers.get('authorization')) ?? undefined,
    };
    return json(await relay.voice[kind].create(caller, profileOf(request, body), body));
  };

/** The socket of a session: only its principal may connect (contract 05 §12, 06 §4). */
function voiceSocket(path: string, grant: VoiceGrant, kind: Kind): SocketRow {
  const authenticate = voice(grant);
  return {
    path: `${path}/${VOICE_SESSION}`,
    async guard(request, relay) {
      const refusal = await authenticate(request, relay);
      // Without an upgrade, the answer is 426 for any id.
      if (refusal || !request.headers.has('upgrade')) return refusal;
      await relay.voice[kind].admit(pathParam(request, 'id'), callerOf(request));
      return undefined;
    },
    maxMessage: MAX_MESSAGE,
    binary: true,
    protocol: VOICE_PROTOCOL,
    open: (request, socket, relay: Relay) =>
      relay.voice[kind].open(pathParam(request, 'id'), callerOf(request), socket),
  };
}

export const createOutputSession = createVoiceSession('output');
export const outputSocket = voiceSocket('/voice/output', 'voice:tts', 'output');

export const createLabSession = createVoiceSession('lab');
export const labSocket = voiceSocket('/voice/realtime', 'voice:realtime', 'lab');

export const createAgentSession = createVoiceSession('agent');
export const agentSocket = voiceSocket('/voice/realtime-agent', 'voice:realtime', 'agent');
