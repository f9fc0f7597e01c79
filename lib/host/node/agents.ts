import { type AgentOptions, Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import type { Socket } from 'node:net';
import { isSecretName } from '../../kit/secret-names.ts';
import { TIMED_OUT } from '../upstream-socket.ts';
import { ForeignListener, type LoopbackGuard } from './loopback-guard.ts';

/** Addresses that `localhost` stands for, in the order of attempts (contract 01 §9.1a). */
const LITERALS = ['127.0.0.1', '::1'];
/** Ports whose address is cached. */
const MAX_PORTS = 256;

export interface AgentsDeps {
  guard: LoopbackGuard | undefined;
  /** Milliseconds for a connection, including TLS. */
  connectTimeout: number;
  /** Options of the agents that keep connections. */
  idle?: AgentOptions;
}

export interface AgentChoice {
  secure: boolean;
  /** Reuses and keeps an idle connection. */
  keepAlive: boolean;
  /** Sends nothing before the guard has approved the connection. */
  guarded: boolean;
}

/** True if a call carries a credential, by the names of its headers and parameters. */
export function carriesCredential(url: URL, headers: Record<string, string>): boolean {
  if (url.username !== '' || url.password !== '') return true;
  const names = [...Object.keys(headers), ...url.searchParams.keys()];
  return names.some((name) => isSecretName(name) || /key$/i.test(name));
}

/**
 * Agents that resolve `localhost` themselves, to the address that answered first, and have the guard approve each new
 * connection before anything is sent on it.
 */
export function createAgents({ guard, connectTimeout, idle = {} }: AgentsDeps) {
  const agents = new Map<string, HttpAgent>();
  const literals = new Map<number, string>();

  /** Opens a connection with `create`, Node's own function for it. */
  function open(create: Create, { secure, guarded }: AgentChoice, options: ConnectOptions): Promise<Socket> {
    const { callSignal } = options;
    const at = async (host?: string) => {
      callSignal?.throwIfAborted();
      return checked(await connected(create({ ...options, host }), secure, callSignal), guarded);
    };
    // A caller's own lookup decides which addresses the call may reach.
    return options.host?.toLowerCase() === 'localhost' && !options.lookup
      ? viaLiteral(Number(options.port), at)
      : at(options.host);
  }

  async function checked(socket: Socket, guarded: boolean): Promise<Socket> {
    const refusal = guarded ? await guard?.(socket) : undefined;
    if (refusal) socket.destroy();
    if (refusal || socket.destroyed) throw refusal ?? new Error('connection closed');
    return socket;
  }

  /** Tries the address that last served this port, then the others. */
  async function viaLiteral(port: number, at: (host: string) => Promise<Socket>): Promise<Socket> {
    const known = literals.get(port);
    const order = known === undefined ? LITERALS : [known, ...LITERALS.filter((each) => each !== known)];
    let failure: unknown;
    for (const literal of order) {
      try {
        const socket = await at(literal);
        if (literals.size >= MAX_PORTS) literals.clear();
        literals.set(port, literal);
        return socket;
      } catch (error) {
        // Report a foreign listener on one address rather than the lack of one on the other.
        if (failure === undefined || error instanceof ForeignListener) failure = error;
      }
    }
    throw failure;
  }

  function connected(socket: Socket, secure: boolean, callSignal: AbortSignal | undefined): Promise<Socket> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => socket.destroy(new Error(TIMED_OUT)), connectTimeout);
      const abort = () => socket.destroy();
      callSignal?.addEventListener('abort', abort);
      const settle = () => {
        clearTimeout(timer);
        callSignal?.removeEventListener('abort', abort);
      };
      socket.once('close', () => {
        settle();
        reject(new Error('connection closed'));
      });
      socket.once('error', reject);
      socket.once(secure ? 'secureConnect' : 'connect', () => {
        settle();
        resolve(socket);
      });
    });
  }

  function make(choice: AgentChoice): HttpAgent {
    const agent = new (choice.secure ? HttpsAgent : HttpAgent)(choice.keepAlive ? idle : {});
    const create = agent.createConnection.bind(agent) as unknown as Create;
    // Node's agent takes a connection from the callback, and sends nothing before that.
    return Object.assign(agent, {
      createConnection(options: ConnectOptions, done: (error: Error | null, socket?: Socket) => void) {
        open(create, choice, options).then((socket) => done(null, socket), done);
      },
    }) as HttpAgent;
  }

  return {
    /** Returns the agent for one call. */
    pick(choice: AgentChoice): HttpAgent {
      const key = `${choice.secure} ${choice.keepAlive} ${choice.guarded}`;
      const agent = agents.get(key) ?? make(choice);
      agents.set(key, agent);
      return agent;
    },
  };
}

/** An option of a request with these agents: ends its connection before that is established, which Node does not. */
export interface CallOptions {
  callSignal?: AbortSignal;
}

interface ConnectOptions extends CallOptions {
  host?: string;
  port?: number | string;
  lookup?: unknown;
}
type Create = (options: ConnectOptions) => Socket;
