import { asObject, type JsonObject, parseJson } from '../../../../lib/kit/json.ts';
import type { App } from '../context.ts';

export interface VoiceSocketEvents {
  open(): void;
  message(event: JsonObject): void;
  /** Called once, even if it could not be opened. */
  close(code: number, wasOpen: boolean): void;
}

export type VoiceSocket = ReturnType<typeof openVoiceSocket>;

/**
 * Opens the socket of a voice session. A page cannot send headers with it, so the token is one subprotocol, and the proof of
 * its key another. The relay selects neither (`handlers/REFERENCE.md`, sockets).
 */
export function openVoiceSocket({ session }: App, path: string, events: VoiceSocketEvents) {
  const url = new URL(path.replace(/^\//, ''), session.target.value);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  const token = session.token();
  let socket: WebSocket | null = null;
  let wasOpen = false;
  let isOver = false;

  function open(proof: string | undefined): void {
    if (isOver) return;
    const proofs = proof === undefined ? [] : [`svc.proof.${proof}`];
    socket = new WebSocket(url, ['svc.voice', `svc.bearer.${token}`, ...proofs]);
    socket.onopen = () => {
      wasOpen = true;
      if (!isOver) events.open();
    };
    socket.onmessage = ({ data }) => {
      const event = asObject(parseJson(String(data)));
      if (event && !isOver) events.message(event);
    };
    socket.onclose = ({ code }) => {
      if (!isOver) events.close(code, wasOpen);
      isOver = true;
    };
  }
  void session.proofFor({ method: 'GET', path: url.pathname, fresh: true }).then(open);

  return {
    send(message: JsonObject): void {
      if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
    },
    close(reason: string): void {
      isOver = true;
      socket?.close(1000, reason);
    },
  };
}
