import type { JSONRPCMessage } from '@modelcontextprotocol/client';
import { describeError } from '../../lib/errors.ts';
import { keepAlive } from '../keep-alive.ts';
import { type CommandContext, printable } from '../output.ts';
import { onSignals } from '../signals.ts';
import { addressOf, createRelayFetch, endpointOf } from './connection.ts';
import type { McpPairing } from './pairings.ts';

const INTERNAL_ERROR = -32603;
/** A program may run for weeks, and the relay may restart meanwhile. */
const RECONNECTION = {
  initialReconnectionDelay: 1_000,
  maxReconnectionDelay: 30_000,
  reconnectionDelayGrowFactor: 1.5,
  maxRetries: Number.MAX_SAFE_INTEGER,
};

/**
 * `svc mcp`: forwards a local program's stdin to the relay's `/mcp`, and the answers to stdout (contract 09 §7). Ends with
 * stdin.
 */
export async function pipe(pairing: McpPairing, context: CommandContext): Promise<void> {
  const { ReadBuffer, serializeMessage, StreamableHTTPClientTransport, isInitializeRequest, isJSONRPCRequest } =
    await import('@modelcontextprotocol/client');
  const { stdin, stdout, stderr } = context;
  const http = new StreamableHTTPClientTransport(endpointOf(await addressOf(pairing, context)), {
    requestInit: { headers: { authorization: `Bearer ${pairing.token}` } },
    fetch: await createRelayFetch(context),
    reconnectionOptions: RECONNECTION,
  });
  const warn = (text: string): void => void stderr.write(`svc mcp: ${printable(text)}\n`);
  const write = (message: JSONRPCMessage): void => void stdout.write(serializeMessage(message));
  let initialize: unknown;

  http.onmessage = (message) => {
    if ('id' in message && message.id === initialize && 'result' in message) {
      http.setProtocolVersion(String((message.result as { protocolVersion?: unknown }).protocolVersion));
    }
    write(message);
  };
  http.onerror = (error) => warn(describeError(error));
  await http.start();

  async function forward(message: JSONRPCMessage): Promise<void> {
    if (isInitializeRequest(message)) initialize = (message as { id: unknown }).id;
    try {
      await http.send(message);
    } catch (error) {
      const problem = problemOf(error);
      // A program that waits for this answer shows the sentence to its user.
      if (isJSONRPCRequest(message)) {
        write({ jsonrpc: '2.0', id: message.id, error: { code: INTERNAL_ERROR, message: problem } });
      } else warn(problem);
    }
  }

  const input = new ReadBuffer();
  // In order until the relay has them, since a cancellation must not overtake the request that it cancels.
  let last: Promise<unknown> = Promise.resolve();
  let isFirst = true;
  await keepAlive(
    new Promise<void>((resolve) => {
      const endSignals = onSignals(done, context);
      const onData = (data: Buffer | string): void => {
        input.append(Buffer.from(data));
        for (;;) {
          let message: JSONRPCMessage | null;
          try {
            message = input.readMessage();
          } catch (error) {
            warn(`a line on stdin is not an MCP message: ${describeError(error)}`);
            continue;
          }
          if (message === null) return;
          const next = message;
          // Later messages wait until the relay has answered the first one.
          if (isFirst) last = forward(next);
          else last = last.then(() => void forward(next));
          isFirst = false;
        }
      };
      function done(): void {
        stdin.off('data', onData);
        stdin.off('end', done);
        endSignals();
        resolve();
      }
      stdin.on('data', onData);
      stdin.on('end', done);
      stdin.resume();
    }),
  );
  await last.catch(() => {});
  await http.terminateSession().catch(() => {});
  await http.close();
}

/** A problem, and its remedy. */
function problemOf(error: unknown): string {
  const status =
    (error as { status?: unknown; data?: { status?: unknown } }).status ??
    (error as { data?: { status?: unknown } }).data?.status;
  if (status === 401) return 'the session of this agent has ended. Pair again with: svc mcp pair';
  if (status === 404)
    return 'the relay does not know this MCP session, or is of another version. Start this program again';
  const { code } = error as { code?: unknown };
  if (code === 'ECONNREFUSED') return 'the relay does not answer. Start it with: svc relay start';
  return `the relay did not take the message: ${describeError(error)}`;
}
