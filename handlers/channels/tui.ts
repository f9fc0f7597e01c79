import { nextTurn } from '../../lib/kit/clock.ts';
import { textOf } from '../../lib/kit/json-text.ts';
import { MAX_UNCOUNTED } from '../../lib/kit/long-json.ts';
import type { Relay } from '../../lib/relay.ts';
import type { Channel, Connection } from '../../lib/socket/channel.ts';
import { encodeEnvelopeAround, type Message } from '../../lib/socket/envelope.ts';
import { describeExit } from '../../lib/tui/tui.ts';

/**
 * `tui`: one gateway process per socket, JSON lines both ways (contract 02 §4).
 *
 * Desktops send `tui.attach` on every connection, whatever its purpose, and drop the socket on any `tui.error`. So only
 * a fault of the gateway itself is a `tui.error`. A missing grant, no gateway on this host, and no host (at the edge)
 * are reported as `system/error` alone.
 */
export const createTuiChannel = ({ tui, version }: Pick<Relay, 'tui' | 'version'>): Channel => ({
  grant: { name: 'tui', label: 'TUI' },
  large: true,

  message(connection, message, text) {
    switch (message.type) {
      case 'tui.attach':
        return attach(tui, version, connection, message);
      case 'tui.rpc.request':
        return request(tui, connection, message, text);
      case 'tui.resize':
        return tui.resize(connection, message.payload);
      case 'tui.detach':
        return void tui.release(connection);
      default:
        fail(connection, `unknown tui message type: ${message.type.slice(0, 64)}`, message.id, 'invalid_request');
    }
  },

  badPayload: (connection, { id }) => fail(connection, 'payload must be a JSON object', id, 'invalid_request'),
  failed: (connection, { id }) => fail(connection, 'internal error', id, 'internal_error'),
  describe: (connection) => ({ attached: tui.isAttached(connection) }),
  closed: (connection) => void tui.release(connection),

  grantLost(connection) {
    if (!tui.release(connection)) return;
    connection.sendError('TUI grant expired for this device', 'permission_denied', undefined, { channel: 'tui' });
  },
});

async function attach(tui: Relay['tui'], version: string, connection: Connection, message: Message): Promise<void> {
  const { id, payload } = message;
  const attached = await tui.attach(connection, payload, {
    attached: (pid) => connection.send('tui', 'tui.attached', { pid, server_version: version }, id),
    // Spliced rather than encoded again, so that numbers and duplicate keys stay as the gateway wrote them.
    received: (kind, text) => connection.sendFrame(encodeEnvelopeAround('tui', `tui.rpc.${kind}`, text)),
    exited: (exit) => fail(connection, `tui_gateway exited (${describeExit(exit)})`),
  });
  switch (attached.kind) {
    case 'attached':
    case 'gone':
      return;
    case 'no-host':
      return noGateway(connection, NO_HOST, id);
    case 'not-installed':
      return noGateway(connection, NOT_INSTALLED, id);
    case 'full':
      return fail(connection, `too many tui sessions on this relay (${attached.limit})`, id, 'session_limit');
    case 'invalid':
      return fail(connection, attached.message, id, 'invalid_request');
    case 'failed':
      return fail(connection, `failed to spawn tui_gateway: ${attached.reason}`, id);
    default:
      attached satisfies never;
  }
}

async function request(tui: Relay['tui'], connection: Connection, { id }: Message, text: string): Promise<void> {
  const lost = () => fail(connection, 'tui_gateway does not read its input any more', id);
  const payload = textOf(text, 'payload');
  if (text.length > MAX_UNCOUNTED) await nextTurn();
  // A missing or null payload is an empty object (contract 02 §1.2).
  const requested = await tui.request(connection, payload?.startsWith('{') ? payload : '{}', lost);
  switch (requested) {
    case 'written':
      return;
    case 'no-host':
      return noGateway(connection, NO_HOST, id);
    case 'no-session':
      return fail(connection, 'no active tui session - send tui.attach first', id);
    case 'full':
      return fail(connection, 'too much input waits for tui_gateway: message dropped', id);
    default:
      requested satisfies never;
  }
}

const NO_HOST = 'TUI gateway is not available: this relay has no host';
const NOT_INSTALLED = 'TUI gateway is not available on this host';

const noGateway = (connection: Connection, text: string, id: string): void =>
  connection.sendError(text, 'tui_unavailable', id, { channel: 'tui' });

const fail = (connection: Connection, message: string, id?: string, error?: string): void =>
  connection.send('tui', 'tui.error', error === undefined ? { message } : { message, error }, id);
