import type { Relay } from '../../lib/relay.ts';
import type { Channel, Connection } from '../../lib/socket/channel.ts';
import { isLongerThan, type Message, type Payload } from '../../lib/socket/envelope.ts';
import { freshName, isName, sizeOf } from '../../lib/terminal/names.ts';
import { isWindow, MAX_WINDOW, MIN_WINDOW } from '../../lib/terminal/pacing.ts';
import type { AttachResult, Terminals } from '../../lib/terminal/terminals.ts';
import type { Viewer } from '../../lib/terminal/viewer.ts';

/** Bytes of one `terminal.input`. */
const MAX_INPUT = 1024 * 1024;
const NO_HOST = 'Terminal is not available: this relay has no host';
/** Messages whose sender expects an answer. */
const EXPECTING_ANSWER = new Set(['terminal.attach', 'terminal.list', 'terminal.kill']);

/** `terminal`: shells on pseudo-terminals (contract 02 §3, 09 §1). */
export const createTerminalChannel = ({ terminals }: Pick<Relay, 'terminals'>): Channel => ({
  grant: { name: 'terminal', label: 'Terminal' },

  message(connection, message) {
    const { type, id, payload } = message;
    const name = nameIn(payload);
    switch (type) {
      case 'terminal.attach':
        return attach(terminals, connection, message);
      case 'terminal.input':
        return input(terminals, connection, message);
      case 'terminal.ack':
        return terminals.acknowledge(connection, name, payload.chars);
      case 'terminal.resize': {
        const size = sizeOf(payload.cols, payload.rows);
        if (size) terminals.resize(connection, name, size);
        return;
      }
      case 'terminal.detach':
        return terminals.detach(connection, name, id);
      case 'terminal.kill':
        return kill(terminals, connection, message);
      case 'terminal.list':
        return list(terminals, connection, message);
      default:
        fail(connection, message, `Unknown terminal message type: ${type.slice(0, 64)}`, 'invalid_request');
    }
  },

  // The desktop client requests a kill and closes its socket at once.
  outlivesSocket: ({ type }) => type === 'terminal.kill',
  badPayload: (connection, message) => fail(connection, message, 'payload must be a JSON object', 'invalid_request'),
  failed: (connection, message) => fail(connection, message, 'internal error', 'internal_error'),
  denied(connection, message, text) {
    if (EXPECTING_ANSWER.has(message.type)) fail(connection, message, text, 'permission_denied');
  },
  describe: (connection) => ({ shells: terminals.shellsOf(connection) }),
  grantLost: (connection) => terminals.release(connection, 'grant-lost'),
  closed: (connection) => terminals.release(connection, 'lost'),
});

/** The session named in a message. An empty name counts as absent. */
const nameIn = ({ session_name: name }: Payload): string | undefined =>
  typeof name === 'string' && name !== '' ? name : undefined;

/** Sends `terminal.error`, with the session's name if the request had one. Phones need it to match the error. */
function fail(connection: Connection, { id, payload }: Message, text: string, error?: string, extra?: Payload): void {
  const name = nameIn(payload);
  const named = name === undefined ? {} : { session_name: name };
  connection.send('terminal', 'terminal.error', { message: text, ...(error && { error }), ...named, ...extra }, id);
}

async function attach(terminals: Terminals, connection: Connection, message: Message): Promise<void> {
  const request = readAttach(message.payload);
  if (typeof request === 'string') return fail(connection, message, request, 'invalid_request');
  const { name } = request;
  const viewer = createViewer(connection, { id: message.id, name, hasTmux: await terminals.hasTmux() });
  const result = await terminals.attach(connection, request, viewer);
  if (result.kind === 'attached') return;
  const [text, error] = refusalOf(result, name);
  fail(connection, message, text, error, { session_name: name });
}

/** Reads the payload of `terminal.attach`. Returns the error sentence of an invalid one. */
function readAttach({ session_name: given, cols, rows, window: chars, mode, shell, run_id: run }: Payload) {
  const name = given === undefined || given === null || given === '' ? freshName() : given;
  if (!isName(name)) return 'session_name must be 1 to 128 printable characters';
  const size = sizeOf(cols, rows);
  if (!size) return 'cols and rows must be numbers';
  const window = chars ?? undefined;
  if (window !== undefined && !isWindow(window)) {
    return `window must be an integer from ${MIN_WINDOW} to ${MAX_WINDOW}`;
  }
  const isWatch = mode === 'watch';
  if (!isWatch && mode !== undefined && mode !== null) return 'mode must be watch';
  // An id of the wrong type still comes from an agent. Only without an id, it is the owner.
  const runId = run === undefined || run === null || run === '' ? undefined : typeof run === 'string' ? run : 'unnamed';
  return { name, shell: typeof shell === 'string' ? shell : undefined, size, window, runId, isWatch };
}

/** Sentence and code of the error for a failed attach. */
function refusalOf(result: Exclude<AttachResult, { kind: 'attached' }>, name: string): [text: string, error?: string] {
  switch (result.kind) {
    case 'gone':
      return ['Terminal is not available any more'];
    case 'full': {
      const where = result.of === 'socket' ? 'Detach an existing session first.' : 'This relay has no room for more.';
      return [`Session cap reached (${result.limit}). ${where}`, 'session_limit'];
    }
    case 'frozen':
      return [result.message, 'frozen'];
    case 'no-session':
      return [`no terminal session named ${name} to watch`];
    case 'taken':
      return [`This socket is attached to ${name} already. Detach it first.`, 'invalid_request'];
    case 'no-shell':
      return ['No executable shell found on this host'];
    case 'failed':
      return ['Failed to start a terminal session'];
    case 'no-pty':
      return ['Terminal channel requires PTY support on this host'];
    case 'no-host':
      return [NO_HOST];
  }
}

/** Sends the events of one attached session to its socket. */
function createViewer(
  connection: Connection,
  { id, name, hasTmux }: { id: string; name: string; hasTmux: boolean },
): Viewer {
  const send = (type: string, payload: Payload, id?: string) =>
    connection.send('terminal', type, { session_name: name, ...payload }, id);
  return {
    attached({ pid, shell, size: { cols, rows }, reattach, replay }) {
      const shown = replay === undefined ? {} : { replay };
      send('terminal.attached', { pid, shell, cols, rows, tmux_available: hasTmux, reattach, ...shown }, id);
    },
    output: (data) => send('terminal.output', { data }),
    resized: ({ cols, rows }) => send('terminal.resized', { cols, rows }),
    detached: (reason, { exitCode, id }) =>
      send('terminal.detached', { reason, ...(exitCode === undefined ? {} : { exit_code: exitCode }) }, id),
    follow: (limits) => connection.follow(limits),
  };
}

function input(terminals: Terminals, connection: Connection, message: Message): void {
  const { data } = message.payload;
  if (typeof data !== 'string') return;
  if (isLongerThan(data, MAX_INPUT)) fail(connection, message, 'input too large', 'message_too_large');
  else if (!terminals.input(connection, nameIn(message.payload), data)) fail(connection, message, 'input queue full');
}

async function kill(terminals: Terminals, connection: Connection, message: Message): Promise<void> {
  const result = await terminals.kill(connection, nameIn(message.payload));
  switch (result.kind) {
    case 'killed': {
      const payload = { session_name: result.name, reason: 'client kill' };
      return connection.send('terminal', 'terminal.detached', payload, message.id);
    }
    case 'no-host':
      return fail(connection, message, NO_HOST);
    case 'unknown': {
      if (result.name === undefined) return fail(connection, message, 'no terminal session');
      const text = `no ${result.tmux ? 'tmux' : 'terminal'} session named ${result.name}`;
      return fail(connection, message, text, undefined, result.tmux ? { reason: 'client kill' } : {});
    }
  }
}

async function list(terminals: Terminals, connection: Connection, message: Message): Promise<void> {
  const result = await terminals.list(connection);
  if (result.kind === 'no-host') return fail(connection, message, NO_HOST);
  const payload = { sessions: result.rows, tmux_available: result.tmux };
  connection.send('terminal', 'terminal.sessions', payload, message.id);
}
