import type { Pairing, PairingStore } from '../lib/companion/link/settings.ts';
import { describeError } from '../lib/errors.ts';
import { urlHost } from '../lib/kit/addresses.ts';
import { randomString } from '../lib/kit/bytes.ts';
import { systemClock } from '../lib/kit/clock.ts';
import { createLog } from '../lib/log.ts';
import { describeDuration } from '../lib/pairing/duration.ts';
import { connectOnce } from './connect-once.ts';
import { type CommandContext, CommandError, line } from './output.ts';
import type { PairOptions } from './pair-options.ts';
import { addressText, callRelay, isSuccess, type RelayAddress, refusal } from './relay-client.ts';

const TIMEOUT = 5000;
const DAY = 86_400;

/**
 * `svc pair --token`: a session for a tool on this machine, such as the `ANDROID_BRIDGE_TOKEN` of an agent. Registers a
 * code at the running relay, redeems it at once, and prints nothing but the token on stdout.
 */
export async function pairTool(options: PairOptions, relay: RelayAddress | null, context: CommandContext) {
  const { ttl = DAY, grants, name = 'Host tool', hint } = options;
  if (!relay) throw new CommandError('the relay is not running', 'Start it with: svc relay start');
  const code = randomString('ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789', 6);
  const scheme = relay.tls ? 'wss' : 'ws';
  const answer = await callRelay(relay, {
    method: 'POST',
    path: '/pairing/register',
    body: { code, ttl_seconds: ttl, grants, transport_hint: hint ?? scheme },
    timeout: TIMEOUT,
  }).catch((error) => {
    throw new CommandError(`the relay on ${addressText(relay)} did not answer: ${describeError(error)}`, 'Try again.');
  });
  if (!isSuccess(answer)) throw new CommandError(`the relay refused the code: ${refusal(answer)}`);

  const { dial } = await import('../lib/host/node/dial.ts');
  const store = memoryStore();
  await connectOnce({
    dial,
    store,
    clock: systemClock,
    log: createLog('ERROR', (text) => line(context.stderr, text)),
    device: { name, surface: 'unknown', formFactor: 'unknown' },
    offer: {
      code,
      endpoints: [{ role: 'local', url: `${scheme}://${urlHost(relay.host)}:${relay.port}/ws`, priority: 0 }],
    },
  });
  const token = store.pairing()?.session_token ?? '';
  line(context.stdout, token);
  if (!context.stderr.isTTY) return;
  line(
    context.stderr,
    `A session of '${name}', ${describeDuration(ttl)}${ttl === 0 ? '' : ' long'}. Send it as: Authorization: Bearer <token>`,
  );
  line(context.stderr, 'To end it:');
  line(
    context.stderr,
    `  curl -H 'X-Svc-Operator: 1' -X DELETE ${relay.tls ? 'https' : 'http'}://${addressText(relay)}/sessions/${token.slice(0, 8)}`,
  );
}

/** Keeps a pairing for as long as this command runs. */
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
