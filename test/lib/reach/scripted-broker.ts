import type { BrokerSocketEvents, DialBroker } from '../../../lib/host/broker-socket.ts';
import { UpstreamSocketError } from '../../../lib/host/upstream-socket.ts';
import { concatBytes } from '../../../lib/kit/bytes.ts';
import { decodeFrame, type Frame } from '../../../lib/reach/frames.ts';
import { isDigest, isId, newId } from '../../../lib/reach/ids.ts';
import { type HostMessage, parseHostMessage, parseRegister } from '../../../lib/reach/messages.ts';

export const HOST_TOKEN = 'host-token-of-the-tests-0123456789abcdef';

/** The reason of a broker that nothing listens for. */
export const REFUSED = 'connection refused';

/** One connection of the connector, seen from the broker. */
export interface Accepted {
  readonly connectionId: string;
  /** Requests of the host, in order. */
  readonly requests: HostMessage[];
  /** Frames of the host, in order. */
  readonly frames: Exclude<Frame, { type: 'bad' }>[];
  readonly isPaused: boolean;
  /** How the host has closed the socket; undefined while it is open. */
  readonly end: { code?: number } | 'terminated' | undefined;
  /** Sends any text, JSON unless it is text already. */
  text(message: unknown): void;
  bytes(bytes: Uint8Array): void;
  /** Acknowledges a request. */
  acknowledge(message: HostMessage): void;
  /** Matches a client: the id of its stream. */
  open(id?: string): string;
  close(code?: number, reason?: string): void;
  /** Lets frames of the host leave from now on, or not. */
  drain(isDraining: boolean): void;
}

export interface ScriptedBrokerOptions {
  flow?: { version: number; window: number };
  /** Acknowledges every request at once. Default: true. */
  acknowledges?: boolean;
  /** Answers the registration; the default accepts it. */
  answer?(accepted: Accepted): void;
  /** Called with each request before it is acknowledged. */
  onRequest?(message: HostMessage, accepted: Accepted): void;
}

/**
 * A broker in memory that checks every message of the host against the contract and otherwise does what it is told. A
 * wrong message fails `verify`.
 */
export function createScriptedBroker(options: ScriptedBrokerOptions = {}) {
  const accepted: Accepted[] = [];
  const urls: string[] = [];
  const problems: string[] = [];
  let refusal: string | undefined;
  let isHanging = false;

  const dial: DialBroker = async (request, events) => {
    urls.push(request.url);
    if (request.maxMessage !== 1024 * 1024 + 18) problems.push(`receive limit ${request.maxMessage}`);
    if (request.pingInterval !== 7_000) problems.push(`ping interval ${request.pingInterval}`);
    if (refusal !== undefined) throw new UpstreamSocketError(refusal, { isRefused: refusal === REFUSED });
    if (isHanging) {
      await new Promise((resolve) => request.signal.addEventListener('abort', resolve));
      throw new UpstreamSocketError('aborted');
    }
    return socketOf(events);
  };

  function socketOf(events: BrokerSocketEvents): Awaited<ReturnType<DialBroker>> {
    let connectionId = '';
    let isPaused = false;
    let end: Accepted['end'];
    let isDraining = true;
    let held: (() => void)[] = [];
    const requests: HostMessage[] = [];
    const frames: Accepted['frames'] = [];
    const acknowledgement = (message: HostMessage): object => {
      const { type } = message;
      if (type === 'publish_bootstrap') {
        return { type: 'published', protocol_version: 1, credential_kind: 'bootstrap', pairing_id: message.pairing_id };
      }
      const credential_id = 'credential_id' in message ? message.credential_id : '';
      const answer = type === 'revoke' ? 'revoked' : 'published';
      return { type: answer, protocol_version: 1, credential_kind: 'route', credential_id };
    };
    const self: Accepted = {
      get connectionId() {
        return connectionId;
      },
      requests,
      frames,
      get isPaused() {
        return isPaused;
      },
      get end() {
        return end;
      },
      text: (message) => {
        if (end === undefined) events.message(typeof message === 'string' ? message : JSON.stringify(message));
      },
      bytes: (bytes) => {
        if (end === undefined) events.bytes(bytes);
      },
      acknowledge: (message) => self.text(acknowledgement(message)),
      open(id = newId()) {
        self.text({ type: 'open', protocol_version: 1, stream_id: id, host_connection_id: connectionId });
        return id;
      },
      close(code = 1000, reason = '') {
        if (end !== undefined) return;
        end = { code };
        events.closed({ code, reason });
      },
      drain(yes) {
        isDraining = yes;
        if (!yes) return;
        const sent = held;
        held = [];
        for (const run of sent) run();
      },
    };

    function register(text: string): void {
      const message = parseRegister(text);
      if (typeof message === 'string' || message.role !== 'host' || message.token !== HOST_TOKEN) {
        problems.push(`registration ${text}`);
      } else {
        if (accepted.some((other) => other.connectionId === message.connection_id))
          problems.push('connection id again');
        connectionId = message.connection_id;
      }
      accepted.push(self);
      if (options.answer) options.answer(self);
      else self.text({ type: 'registered', protocol_version: 1, further: true, flow: options.flow });
    }

    return {
      send(text) {
        if (end !== undefined) return;
        if (connectionId === '') return queueMicrotask(() => register(text));
        const message = parseHostMessage(text);
        if (!message || !isSound(message)) {
          problems.push(`message ${text}`);
          return;
        }
        requests.push(message);
        options.onRequest?.(message, self);
        if (message.type !== 'flow' && options.acknowledges !== false) queueMicrotask(() => self.acknowledge(message));
      },
      sendBytes(head, parts, sent) {
        const bytes = concatBytes(head, ...parts);
        const frame = decodeFrame(bytes, options.flow !== undefined);
        if (frame.type === 'bad') problems.push(`frame of ${bytes.length} bytes`);
        else if (end === undefined) frames.push(frame);
        if (isDraining) queueMicrotask(sent);
        else held.push(sent);
      },
      unsent: () => 0,
      pause: () => {
        isPaused = true;
      },
      resume: () => {
        isPaused = false;
      },
      close(code) {
        if (end !== undefined) return;
        end = { code };
        queueMicrotask(() => events.closed({ code: code ?? 1005, reason: '' }));
      },
      terminate() {
        if (end !== undefined) return;
        end = 'terminated';
        queueMicrotask(() => events.closed({ code: 1006, reason: '' }));
      },
    };
  }

  return {
    dial,
    accepted,
    urls,
    /** The latest connection. */
    get last(): Accepted {
      return accepted.at(-1) as Accepted;
    },
    /** Every further attempt fails with this reason; undefined ends that. */
    refuse(reason: string | undefined) {
      refusal = reason;
    },
    /** Every further attempt hangs until it is given up. */
    hang() {
      isHanging = true;
    },
    /** @throws Error naming the first message of the host that was wrong. */
    verify() {
      if (problems[0] !== undefined) throw new Error(`the host sent something wrong: ${problems[0]}`);
    },
  };
}

/** Rules that the shape of a message does not express. */
function isSound(message: HostMessage): boolean {
  switch (message.type) {
    case 'publish_bootstrap':
      return (
        Number.isInteger(message.expires_at) && [1, 4].includes(message.max_uses) && isDigest(message.token_sha256)
      );
    case 'publish_route':
      return Number.isInteger(message.expires_at) && isId(message.credential_id);
    case 'revoke':
      return isId(message.credential_id);
    case 'flow':
      return message.window === 256 * 1024;
  }
}
