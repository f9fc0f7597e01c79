import type { IncomingMessage } from 'node:http';
import { createStorage } from 'unstorage';
import { markerHeaders, markerOfStart, markerSecret, readStarts } from '../../lib/dashboard/marker.ts';
import { describeError } from '../../lib/errors.ts';
import type { HostFiles } from '../../lib/host/index.ts';
import type { Log } from '../../lib/log.ts';
import { createQrSecret } from '../../lib/pairing/secret.ts';

/** Milliseconds after which the secret is read again: the relay makes one at each start. */
const SECRET_AGE = 1_000;

export interface MarkerDeps {
  /** `SVC_RELAY_DASHBOARD_PROXY_SECRET`. */
  configured: string | undefined;
  files: HostFiles;
  agentHome: string;
  log: Log;
}

export type Marker = ReturnType<typeof createMarker>;

/** Dashboard side of the marker that the relay recognizes (contract 07 §4.3). */
export function createMarker({ configured, files, agentHome, log }: MarkerDeps) {
  let secret: string | null = null;
  let readAt = Number.NEGATIVE_INFINITY;

  /** Null when it cannot be read. A relay that makes no marker at its start has one of the signing secret. */
  async function readSecret(): Promise<string | null> {
    const { read } = createQrSecret({ host: { files, agentHome }, store: createStorage(), log });
    try {
      const [start] = configured === undefined ? await readStarts(files, agentHome) : [];
      const user = process.geteuid?.() ?? null;
      secret = start ? markerOfStart(start, user) : await markerSecret({ configured, signingSecret: read });
    } catch (error) {
      log.warn(`the marker of the relay cannot be read: ${describeError(error)}`);
      secret = null;
    }
    readAt = performance.now();
    return secret;
  }

  const headersWith = ({ socket }: IncomingMessage, known: string): string[] =>
    markerHeaders(known, socket.remoteAddress, 'encrypted' in socket);

  return {
    /**
     * The headers that mark a request, as alternating names and values; null when there is no secret, and a request that
     * cannot be marked is not forwarded. Returns a promise only when the secret has to be read.
     */
    headersFor(req: IncomingMessage): string[] | null | Promise<string[] | null> {
      const isFresh = performance.now() - readAt < SECRET_AGE;
      if (secret !== null && isFresh) return headersWith(req, secret);
      return readSecret().then((read) => (read === null ? null : headersWith(req, read)));
    },

    /** Why a request cannot be forwarded. */
    missing: `the secret that the relay trusts, in ${agentHome}, can be neither read nor made`,
  };
}
