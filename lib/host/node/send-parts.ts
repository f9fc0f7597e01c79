import type { Socket } from 'node:net';

const [FINAL_BINARY, MASKED] = [0x82, 0x80];
const MASK_BYTES = 4;

/**
 * Sends a binary message (RFC 6455 §5.2) in parts over the connection of an open WebSocket of `ws`, which itself takes only
 * whole messages. Joining them costs home a tenth of a download over Reach, and the broker a sixth of an upload (2026-11). `ws`
 * writes its own messages at once, so the order is kept.
 *
 * `isMasked`: whether to send a mask, as a client must; it consists of zeros. `sent` is called once the message has left the
 * process, or never can.
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
  const writes = [front, ...parts];
  const last = writes.pop();
  tcp.cork();
  for (const bytes of writes) tcp.write(bytes);
  tcp.write(last as Uint8Array, sent);
  tcp.uncork();
}
