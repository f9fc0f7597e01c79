import { describeError, RelayError } from '../../lib/errors.ts';
import type { Relay } from '../../lib/relay.ts';
import type { Channel, Connection } from '../../lib/socket/channel.ts';

/** Maximum characters of a ping whose `ts`, which may be any JSON, is echoed. A longer ping gets the relay's time. */
const MAX_ECHOED = 4096;

/**
 * `system`: answers `ping`, counts `pong` as a sign of life, sends a device its credentials for the mailbox (contract 12
 * §3), records that it has home's key (§4), and ignores everything else (contract 02 §2).
 */
export function createSystemChannel({ homeMirror, log: root }: Relay): Channel {
  const log = root.named('mirror');
  /** Connections with an unanswered request for the mailbox, which need no second answer. */
  const asking = new Set<Connection>();

  async function giveMailbox(connection: Connection, id?: string): Promise<void> {
    if (asking.has(connection)) return;
    asking.add(connection);
    try {
      if (!homeMirror) throw new RelayError('unsupported', 'only the home of a device knows its mailbox');
      const { mailbox, onDelivered } = await homeMirror.renewMailbox(connection.session);
      connection.send('system', 'mailbox', { mailbox }, id);
      connection.probe(onDelivered);
    } catch (error) {
      const expected = error instanceof RelayError;
      if (!expected) log.error(`a device did not get its mailbox: ${describeError(error)}`);
      const [message, kind] = expected ? [error.message, error.kind] : ['internal error', 'internal'];
      connection.sendError(message, kind === 'unsupported' ? 'no_mailbox' : 'unavailable', id);
    } finally {
      asking.delete(connection);
    }
  }

  return {
    anyDepth: true,

    message(connection, { type, id, payload }, text) {
      if (type === 'pong') return connection.ponged(payload.ts);
      // Not awaited, so that pings are still answered.
      if (type === 'mailbox.get') return void giveMailbox(connection, id);
      if (type === 'box.known') return void homeMirror?.boxKnown(connection.session, payload.key);
      if (type !== 'ping') return;
      const ts = text.length > MAX_ECHOED ? undefined : payload.ts;
      connection.send('system', 'pong', { ts: ts ?? Date.now() }, id);
    },
  };
}
