import type { Stores } from '../../storage/schema.ts';
import type { Config } from '../config.ts';
import type { Host } from '../host/index.ts';
import type { Upstream } from '../host/upstream.ts';
import type { DialUpstream } from '../host/upstream-socket.ts';
import type { Clock } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import type { Security } from '../operator/security.ts';
import type { Sessions } from '../sessions/sessions.ts';

export interface VoiceParts {
  /** Absent at the edge. */
  host?: Host;
  config: Config;
  clock: Clock;
  log: Log;
  /** The deployment's variables (edge). On a host, those of the host count. */
  env?: Readonly<Record<string, string | undefined>>;
  upstream: Upstream;
  dialUpstream: DialUpstream;
  sessions: Sessions;
  security: Security;
  stores: Stores;
}

/** Everything of contract 05. One member per part of it. */
export function createVoice(_parts: VoiceParts) {
  return {};
}
