import { RelayError } from '../errors.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { HeaderReader } from './peer.ts';
import { type Proofs, proofOf } from './proofs.ts';

export interface BearerRequest {
  readonly headers: HeaderReader;
  readonly method: string;
  readonly url: string;
}

export type SessionBearers = ReturnType<typeof createSessionBearers>;

/**
 * Finds the session of the bearer of a request or upgrade. A session that is bound to a key needs a proof
 * (handlers/web/README.md); any other is found synchronously.
 */
export function createSessionBearers({ sessions, proofs }: { sessions: Sessions; proofs: Proofs }) {
  async function proved(token: string, request: BearerRequest, key: string): Promise<Session | undefined> {
    const proof = proofOf(request.headers);
    const target = { method: request.method, path: pathOf(request.url), token };
    const verdict = proof === null ? undefined : await proofs.verify(proof, target, key);
    if (verdict?.kind === 'proved') return sessions.authenticate(token, verdict.thumbprint);
    const problem = verdict === undefined ? 'needs' : verdict.kind === 'stale' ? 'needs a newer' : 'needs another';
    throw new RelayError('unauthorized', `this session ${problem} proof of the key that it is bound to`, {
      nonce: proofs.nonce().nonce,
    });
  }

  return {
    /**
     * @throws RelayError `unauthorized` with a nonce when the session is bound to a key and the proof is not valid;
     * `unavailable` when the session was ended by a clock that may be wrong (contract 11 §2).
     */
    sessionOf(token: string, request: BearerRequest): Session | undefined | Promise<Session | undefined> {
      const session = sessions.authenticate(token);
      if (session) return session;
      const key = sessions.keyOf({ token });
      if (key !== undefined) return proved(token, request, key);
      sessions.refuseAside({ token });
      return undefined;
    },
  };
}

/** The path of an absolute URL as sent, without the query. */
function pathOf(url: string): string {
  const path = url.slice(url.indexOf('/', url.indexOf('//') + 2));
  return path.slice(0, path.search(/[?#]|$/));
}
