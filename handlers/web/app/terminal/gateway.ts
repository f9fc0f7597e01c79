import { type ReadonlySignal, signal } from '@preact/signals';
import { isObject, type JsonObject } from '../../../../lib/kit/json.ts';
import type { Message } from '../../../../lib/socket/envelope.ts';
import type { Port } from '../session.ts';

/** Maximum unanswered requests; more are refused. */
const MAX_PENDING = 64;
/** Characters of an unknown event that are shown. */
const MAX_DETAIL = 200;

export type GatewayState =
  /** Waits for the connection, or for the gateway to start. */
  | { name: 'waiting' }
  | { name: 'ready' }
  /** This relay has no gateway. */
  | { name: 'unavailable'; message: string }
  | { name: 'ended'; message: string };

export interface AgentSession {
  id: string;
  title: string;
}

export interface GatewayDeps {
  port: Pick<Port, 'send'>;
  /** Prints text with ANSI colours. */
  print(text: string): void;
}

export type Gateway = ReturnType<typeof createGateway>;

/**
 * The agent's TUI gateway (contract 02 §4): JSON-RPC in both directions, printed as a terminal would show it. One process
 * per connection, so after a loss a new one resumes the conversation.
 */
export function createGateway({ port, print }: GatewayDeps) {
  const state = signal<GatewayState>({ name: 'waiting' });
  const isBusy = signal(false);
  const pending = new Map<string, { resolve(result: unknown): void; reject(error: Error): void }>();
  let lastId = 0;
  let session: string | undefined;
  let isLineOpen = false;
  /** True if parts of the current answer were printed. */
  let hasParts = false;

  function write(text: string, colour = ''): void {
    const clean = cleanText(text);
    if (clean === '') return;
    isLineOpen = !clean.endsWith('\n');
    const shown = clean.replaceAll('\n', '\r\n');
    print(colour === '' ? shown : `\x1b[${colour}m${shown}\x1b[0m`);
  }

  function writeLine(text: string, colour?: string): void {
    if (isLineOpen) write('\n');
    write(`${text}\n`, colour);
  }

  function call(method: string, params: JsonObject = {}): Promise<unknown> {
    if (pending.size >= MAX_PENDING) return Promise.reject(new Error('Too many requests wait for the agent.'));
    const id = `r${++lastId}`;
    return new Promise((resolve, reject) => {
      pending.set(id, { resolve, reject });
      if (!port.send('tui.rpc.request', { jsonrpc: '2.0', id, method, params })) answer(id, new Error('Offline'));
    });
  }

  function answer(id: string, result: unknown): void {
    const waiting = pending.get(id);
    pending.delete(id);
    if (result instanceof Error) waiting?.reject(result);
    else waiting?.resolve(result);
  }

  function endAll(message: string): void {
    isBusy.value = false;
    for (const id of [...pending.keys()]) answer(id, new Error(message));
  }

  async function openSession(method: 'session.create' | 'session.resume', params: JsonObject): Promise<string> {
    const result = await call(method, params);
    const id = idOf(result) ?? (typeof params.session_id === 'string' ? params.session_id : undefined);
    if (id === undefined) throw new Error('The agent has opened no session.');
    session = id;
    return id;
  }

  async function ready(): Promise<void> {
    if (state.value.name === 'ready') return;
    state.value = { name: 'ready' };
    if (session !== undefined) await openSession('session.resume', { session_id: session });
  }

  function showEvent(params: JsonObject): void {
    const type = typeof params.type === 'string' ? params.type : '';
    const payload = isObject(params.payload) ? params.payload : {};
    const text = textOf(payload);
    switch (type) {
      case 'gateway.ready':
        ready().catch(({ message }: Error) => writeLine(message, RED));
        return;
      case 'message.delta':
        hasParts = true;
        write(text);
        return;
      case 'message.complete':
        if (!hasParts) write(text);
        if (isLineOpen) write('\n');
        hasParts = false;
        isBusy.value = false;
        return;
      case 'thinking.delta':
      case 'reasoning.delta':
        write(text, DIM);
        return;
      case 'tool.start':
        writeLine(`> ${nameOf(payload)}`, CYAN);
        return;
      case 'tool.complete':
        writeLine(`  ${nameOf(payload)}${text === '' ? '' : `: ${firstLine(text)}`}`, DIM);
        return;
      case 'error':
        writeLine(text === '' ? 'Error' : text, RED);
        isBusy.value = false;
        return;
      default:
        if (text !== '') writeLine(`${type}: ${firstLine(text)}`, DIM);
    }
  }

  return {
    state: state as ReadonlySignal<GatewayState>,
    /** True if the agent is answering. */
    isBusy: isBusy as ReadonlySignal<boolean>,

    /** Starts the gateway, or a new one after a loss. */
    attach(size: { cols: number; rows: number }): void {
      endAll('The connection was lost.');
      state.value = { name: 'waiting' };
      port.send('tui.attach', { ...size, ...(session !== undefined && { resume_session_id: session }) });
    },

    lost(): void {
      endAll('The connection was lost.');
      if (state.value.name === 'ready') state.value = { name: 'waiting' };
    },

    receive({ type, payload }: Message): void {
      switch (type) {
        case 'tui.rpc.event':
          if (isObject(payload.params)) showEvent(payload.params);
          return;
        case 'tui.rpc.response': {
          const error = isObject(payload.error) ? new Error(String(payload.error.message ?? 'Error')) : undefined;
          answer(String(payload.id), error ?? payload.result);
          return;
        }
        case 'tui.error':
          endAll(String(payload.message));
          state.value = { name: 'ended', message: String(payload.message) };
      }
    },

    /** `system/error`, the answer of a relay without a gateway. True if it is about the gateway. */
    receiveError({ type, payload }: Message): boolean {
      if (type !== 'error' || payload.channel !== 'tui') return false;
      endAll(String(payload.message));
      state.value = { name: 'unavailable', message: String(payload.message) };
      return true;
    },

    /** Sends a message to the agent, in a new session unless one is open. Failures are printed. */
    async submit(text: string): Promise<void> {
      writeLine(`❯ ${text}`, BOLD);
      isBusy.value = true;
      try {
        const session_id = session ?? (await openSession('session.create', {}));
        await call('prompt.submit', { session_id, text });
      } catch (error) {
        isBusy.value = false;
        writeLine((error as Error).message, RED);
      }
    },

    interrupt(): void {
      if (session === undefined) return;
      call('session.interrupt', { session_id: session }).then(
        () => {
          isBusy.value = false;
        },
        ({ message }: Error) => writeLine(message, RED),
      );
    },

    /** The conversations that can be continued. */
    async sessions(): Promise<AgentSession[]> {
      const result = await call('session.list');
      const rows = isObject(result) ? (result.sessions ?? result.items) : result;
      return (Array.isArray(rows) ? rows : []).flatMap((row) => {
        const id = idOf(row);
        if (id === undefined || !isObject(row)) return [];
        const title = [row.title, row.preview].find((text) => typeof text === 'string' && text !== '');
        return [{ id, title: typeof title === 'string' ? firstLine(cleanText(title)) : id }];
      });
    },

    async resume(id: string): Promise<void> {
      await openSession('session.resume', { session_id: id });
    },

    /** The next message starts a new conversation. */
    startAnew(): void {
      session = undefined;
    },

    resize: (size: { cols: number; rows: number }): void => {
      if (state.value.name === 'ready') port.send('tui.resize', { ...size });
    },
    /** Ends the process. */
    detach: () => void port.send('tui.detach', {}),
  };
}

const RED = '31';
const CYAN = '36';
const DIM = '2';
const BOLD = '1';

/** Text of the agent without control characters, which could manipulate the screen. */
const cleanText = (text: string): string =>
  // biome-ignore lint/suspicious/noControlCharactersInRegex: it removes them
  text.replace(/\x1b\[[\x20-\x3f]*[\x40-\x7e]|[\x00-\x08\x0b-\x1f\x7f-\x9f]/g, '');

const firstLine = (text: string): string => (text.trim().split('\n', 1)[0] ?? '').slice(0, MAX_DETAIL);

function textOf(payload: JsonObject): string {
  const found = ['text', 'delta', 'content', 'message', 'summary'].find((key) => typeof payload[key] === 'string');
  return found === undefined ? '' : String(payload[found]);
}

const nameOf = ({ name, tool_name, context }: JsonObject): string =>
  [name ?? tool_name ?? 'tool', context].filter((part) => typeof part === 'string' && part !== '').join(' ');

function idOf(value: unknown): string | undefined {
  if (!isObject(value)) return undefined;
  const id = value.session_id ?? value.id;
  return typeof id === 'string' && id !== '' ? id : undefined;
}
