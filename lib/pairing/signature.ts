import { hmac } from '@noble/hashes/hmac.js';
import { sha256 } from '@noble/hashes/sha2.js';
import { base64, utf8ToBytes } from '../kit/bytes.ts';
import { canonicalJson, type Json } from './canonical-json.ts';

export type Payload = { [key: string]: Json | undefined };

/** HMAC-SHA256 of a payload's canonical form without `sig`, as base64 with padding (contract 01 §5.4). */
export function signPayload(payload: Payload, secret: Uint8Array): string {
  const { sig: _, ...signed } = payload;
  return base64(hmac(sha256, secret, utf8ToBytes(canonicalJson(signed))));
}
