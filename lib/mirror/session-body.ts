import * as v from 'valibot';
import { readAs } from '../kit/entries.ts';
import type { JsonObject } from '../kit/json.ts';
import { fromStored, type Session, toStored } from '../sessions/session.ts';
import { time } from './records.ts';

/** The members of a stored session that concern only home: its tokens, when it was last seen, and pending work. */
const HOME_ONLY = [
  'refresh',
  'routes',
  'last_seen',
  'terminal_reduced',
  'noticed_expiry',
  'answers_pings',
  'mirrored',
  'chain',
  'paired_here',
] as const;

const hash = v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/));
const family = v.pipe(v.string(), v.regex(/^[0-9a-f]{32}$/));
const expiry = v.nullable(time);

/**
 * A session of home in the form for the edge (contract 12 §2): device and policy, and `mailbox`, the hashes of the
 * credentials for the edge. Home's tokens are worthless there and stay here.
 */
export function bodyOf(session: Session, mailbox: JsonObject): JsonObject {
  const body: JsonObject = { ...toStored(session) };
  for (const name of HOME_ONLY) delete body[name];
  return Object.assign(body, mailbox);
}

/** The session of a body, in the edge's form; null if malformed. */
export function sessionOf(body: JsonObject): Session | null {
  const { first_seen } = body;
  return fromStored({ ...body, last_seen: first_seen, mirrored: true });
}

export const readEnded = readAs(v.object({ family }));
export const readReduced = readAs(v.object({ family, expires_at: expiry, grants: v.record(v.string(), expiry) }));
export const readSeen = readAs(v.object({ family, at: time }));
export const readPaired = readAs(v.object({ family, chain: v.pipe(v.number(), v.safeInteger()), code: hash }));
export const readLiving = readAs(v.object({ families: v.array(family) }));
