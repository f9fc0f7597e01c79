import { get } from 'idb-keyval';
import type { Sealing } from '../../../../lib/companion/link/sealing.ts';
import { noLog } from '../no-log.ts';
import { createProver, type ProofKey } from '../proof.ts';
import { openSealing } from '../sealing.ts';
import { homeOf, httpBase, pairingDatabase, pairingKey, proofKeyName, type StoredPairing } from '../stored-pairing.ts';

export type Caller = ReturnType<typeof createCaller>;

/**
 * Calls the relay of the stored pairing, with the proof of a bound session. Writes neither. `base` is the address of the
 * relay that served the page.
 */
export function createCaller(base: string) {
  let home = { address: base, prover: createProver(base) };
  const database = pairingDatabase();

  const stored = () => get<StoredPairing>(pairingKey(base), database).catch(() => undefined);

  /** The key that the stored session is bound to, if any. */
  async function keyOf({ pairing }: StoredPairing): Promise<ProofKey | undefined> {
    return pairing?.bound ? get<ProofKey>(proofKeyName(base), database).catch(() => undefined) : undefined;
  }

  return {
    stored,

    /** `route` is relative to the relay's address. Also resolves with the token that was sent. */
    async fetch(route: string, init: RequestInit = {}): Promise<{ response: Response; token: string | null }> {
      const found = await stored();
      const socket = found?.pairing ? homeOf(found.pairing) : undefined;
      const address = socket === undefined ? base : httpBase(socket);
      if (address !== home.address) home = { address, prover: createProver(address) };
      const { prover } = home;
      // The session of a home that this browser cannot reach is invalid at its mailbox.
      const token = (socket !== undefined && found?.pairing?.session_token) || null;
      const key = found && (await keyOf(found));
      const send = async (): Promise<[Response, string | undefined]> => {
        const headers = new Headers(init.headers);
        const target = { method: init.method ?? 'GET', path: route };
        const proof = token !== null && key ? await prover.prove({ ...target, token, key }) : undefined;
        if (token !== null) headers.set('authorization', `Bearer ${token}`);
        if (proof !== undefined) headers.set('dpop', proof);
        const request = { ...init, headers, cache: 'no-store', redirect: 'error', credentials: 'omit' } as const;
        return [await fetch(new URL(route, address), request), proof];
      };
      const [response, proof] = await send();
      if (response.status !== 401 || !prover.take(response, proof)) return { response, token };
      await response.body?.cancel();
      return { response: (await send())[0], token };
    },

    /** For what is said at the mailbox of a stored pairing. */
    sealing: ({ deviceId, pairing }: StoredPairing): Sealing =>
      openSealing(base, { store: { deviceId, pairing: () => pairing }, log: noLog }),

    /** The proof for the first frame of a socket, for the token in it; undefined if the session is not bound. */
    async socketProof(found: StoredPairing, token: string, challenge?: string): Promise<string | undefined> {
      const key = await keyOf(found);
      return key ? home.prover.proveSocket(token, key, challenge) : undefined;
    },
  };
}
