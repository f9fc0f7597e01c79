import { createHash } from 'node:crypto';
import type { Client, Frame } from './client.ts';
import { bearer, type Target } from './relay.ts';

/** What a proof says; a test changes some of it. */
export interface ProofFacts {
  htm: string;
  htu: string;
  /** The credential that it goes with. */
  token: string;
  nonce?: string;
  claims?: Record<string, unknown>;
  header?: Record<string, unknown>;
}

export type Prover = Awaited<ReturnType<typeof createProver>>;

const encode = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
export const hashOf = (text: string): string => createHash('sha256').update(text).digest('base64url');

/** A key like that of a page, and the proofs that it signs (handlers/web/README.md). */
export async function createProver() {
  const pair = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, false, ['sign']);
  const { kty, crv, x, y } = await crypto.subtle.exportKey('jwk', pair.publicKey);

  async function prove({ htm, htu, token, nonce, claims, header }: ProofFacts): Promise<string> {
    const head = { alg: 'ES256', typ: 'dpop+jwt', jwk: { kty, crv, x, y }, ...header };
    const body = { jti: crypto.randomUUID(), htm, htu, iat: 1, ath: hashOf(token), nonce, ...claims };
    const signed = `${encode(head)}.${encode(body)}`;
    const signature = await crypto.subtle.sign(
      { name: 'ECDSA', hash: 'SHA-256' },
      pair.privateKey,
      Buffer.from(signed),
    );
    return `${signed}.${Buffer.from(signature).toString('base64url')}`;
  }

  return {
    prove,
    /** Headers of a request with a proof. */
    headers: async (facts: ProofFacts): Promise<Record<string, string>> => ({
      ...bearer(facts.token),
      dpop: await prove(facts),
    }),
    /** Authenticates on a connected socket: takes the challenge, if there is one. */
    async authenticate(client: Client, payload: Record<string, unknown>, nonce?: string): Promise<Frame> {
      const token = String(payload.session_token ?? payload.refresh_token ?? payload.pairing_code);
      const send = async (given?: string) =>
        client.send('system', 'auth', {
          ...payload,
          proof: await prove({ htm: 'GET', htu: '/ws', token, nonce: given }),
        });
      await send(nonce);
      const answer = await client.next({ channel: 'system' });
      if (answer.type !== 'auth.challenge') return answer;
      await send(String(answer.payload.nonce));
      return client.next({ channel: 'system' });
    },
  };
}

export const nonceOf = async (target: Target): Promise<string> =>
  (await (await target.fetch('/sessions/nonce')).json()).nonce;
