import type { Pairing, PairingStore } from '../../lib/companion/link/settings.ts';
import { urlHost } from '../../lib/kit/addresses.ts';
import { systemClock } from '../../lib/kit/clock.ts';
import { createLog } from '../../lib/log.ts';
import { newPairingCode } from '../../lib/pairing/code.ts';
import { describeDuration } from '../../lib/pairing/duration.ts';
import { connectOnce } from '../connect-once.ts';
import { type CommandContext, line, quote } from '../output.ts';
import type { RelayAddress } from '../relay-client.ts';
import type { PairOptions } from './options.ts';
import { registerAt } from './register.ts';

/** Seconds. */
const DAY = 86_400;
/** Grants that a tool gets only if `--only` or `--grants` names them (contract 11 §2). */
const ON_REQUEST = ['terminal', 'tui', 'desktop', 'devices', 'files'];

/**
 * `svc pair --token`: creates a session for a tool on this machine, such as the `ANDROID_BRIDGE_TOKEN` of an agent, and
 * prints only the token on stdout. Without `--only`, it gets no shell, desktop, file or other device.
 */
export async function pairTool(options: PairOptions, address: RelayAddress, context: CommandContext) {
  const { ttl = DAY, grants, only, name = 'Host tool', hint } = options;
  const withheld = only ? [] : ON_REQUEST.filter((grant) => !Object.hasOwn(grants ?? {}, grant));
  const without = [...new Set([...(options.without ?? []), ...withheld])];
  const { token } = await createToolSession({ ttl, grants, without, name, hint }, address, context);
  quote(context.stdout, token);
  if (!context.stderr.isTTY) return;
  line(
    context.stderr,
    `A session for '${name}', valid ${ttl === 0 ? 'without end' : `for ${describeDuration(ttl)}`}. Send it as: Authorization: Bearer <token>`,
  );
  line(context.stderr, `Revoke it with: svc devices revoke ${token.slice(0, 8)}`);
}

export interface ToolSession extends Partial<Pick<PairOptions, 'grants' | 'without' | 'hint'>> {
  /** Seconds; 0 means never expires. */
  ttl: number;
  /** Device name of the tool. */
  name: string;
}

/**
 * Creates a session at the running relay: registers a code as its operator, and redeems it at once.
 * @throws CommandError if the relay is not running or refuses.
 */
export async function createToolSession(
  { ttl, grants, without, name, hint }: ToolSession,
  address: RelayAddress,
  context: CommandContext,
): Promise<{ token: string; relay: RelayAddress }> {
  const code = newPairingCode();
  const { relay } = await registerAt(address, { code, ttl, grants, without, hint });
  const scheme = relay.tls ? 'wss' : 'ws';
  const { dial, dialVerified } = await import('../../lib/host/node/dial.ts');
  const store = memoryStore();
  await connectOnce({
    // Nobody can intercept loopback; elsewhere the code is a credential, so the certificate is verified.
    dial: relay.url === undefined ? dial : dialVerified,
    store,
    clock: systemClock,
    log: createLog('ERROR', (text) => line(context.stderr, text)),
    device: { name, surface: 'unknown', formFactor: 'unknown' },
    offer: {
      code,
      endpoints: [{ role: 'local', url: `${scheme}://${urlHost(relay.host)}:${relay.port}/ws`, priority: 0 }],
    },
  });
  return { token: store.pairing()?.session_token ?? '', relay };
}

/** Stores a pairing while this command runs. */
function memoryStore(): PairingStore {
  let pairing: Pairing | null = null;
  return {
    deviceId: crypto.randomUUID(),
    pairing: () => pairing,
    async replacePairing(next) {
      pairing = next;
    },
    async updatePairing(change) {
      pairing = pairing && { ...pairing, ...change };
    },
    async removePairing() {
      pairing = null;
    },
  };
}
