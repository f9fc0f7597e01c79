import type { Socket } from 'node:net';

const [FINAL_BINARY, MASKED] = [0x82, 0x80];
const MASK_BYTES = 4;

/**
 * Sends a binary message of a WebSocket of `ws` (RFC 6455 §5.2) in parts, which `ws` would take only joined: that costs Reach
 * a tenth of its processor time. `ws` writes its own messages at once, so the order is kept.
 *
 * `tcp`: the connection below, whose WebSocket is open. `isMasked`: for a client, which has to send a mask; it is of zeros.
 * `sent` is called once the message has left the process, or never can.
 */
export function sendParts(
  tcp: Socket,
  head: Uint8Array,
  parts: readonly Uint8Array[],
  { isMasked = false, sent }: { isMasked?: boolean; sent(): void },
): void {
  const length = parts.reduce((sum, part) => sum + part.length, head.length);
  const size = length < 126 ? 2 : length < 65_536 ? 4 : 10;
  const headAt = size + (isMasked ? MASK_BYTES : 0);
  const front = Buffer.allocUnsafe(headAt + head.length).fill(0, size, headAt);
  front[0] = FINAL_BINARY;
  front[1] = (isMasked ? MASKED : 0) | (size === 2 ? length : size === 4 ? 126 : 127);
  if (size === 4) front.writeUInt16BE(length, 2);
  else if (size === 10) front.writeBigUInt64BE(BigInt(length), 2);
  front.set(head, headAt);
  const last = parts.length - 1;
  tcp.cork();
  tcp.write(front, last < 0 ? sent : undefined);
  parts.forEach((part, index) => void tcp.write(part, index === last ? sent : undefined));
  tcp.uncork();
}
