import { timingSafeEqual } from '../../kit/bytes.ts';
import { isObject } from '../../kit/json.ts';
import { isDigest, isId } from '../ids.ts';
import { type ClientKind, MAX_USES } from '../messages.ts';
import type { SeenRecord } from './limits.ts';

/** Maximum credentials of one host, including consumed bootstraps (contract 08 §7.7). */
const MAX_PER_HOST = 1024;
/** Seconds for which an expired credential is remembered, and a consumed one at least. */
const KEPT_AFTER = 24 * 3600;
/** Maximum seconds from now until a credential's expiry. */
const MAX_LIFE = { bootstrap: 24 * 3600, route: 400 * 24 * 3600 };

/** A credential with which clients reach a host. Times are epoch seconds. */
export interface CredentialRecord {
  host_id: string;
  token_sha256: string;
  expires_at: number;
  /** Null for a route, whose uses are unlimited. */
  uses_left: number | null;
  kind: ClientKind;
  /** `pairing_id` of a bootstrap. */
  credential_id: string;
  device_id_hash: string | null;
}

/** A consumed bootstrap, and how long that is remembered. */
export interface ConsumedRecord {
  token_sha256: string;
  expires_at: number;
  /** Its host and its own expiry; absent in records of former versions, which count for no host. */
  host_id?: string;
  spent_until?: number;
}

/** A change to store: the record of a digest (of a connection ID, for `seen`), or null to remove it. */
export type Change =
  | { table: 'credential'; digest: string; record: CredentialRecord | null }
  | { table: 'consumed'; digest: string; record: ConsumedRecord | null }
  | { table: 'seen'; digest: string; record: SeenRecord | null };

type Refusal = 'unauthorized' | 'quota_exceeded';

/** Digests of client credentials. Methods that change something return the changes to store. */
export class Credentials {
  readonly #records = new Map<string, CredentialRecord>();
  readonly #ofHost = new Map<string, Set<string>>();
  readonly #consumed = new Map<string, ConsumedRecord>();
  readonly #consumedOfHost = new Map<string, Set<string>>();

  /** Loads records from the store that are valid, not to be forgotten yet, and of a known host. Counts the rest. */
  load(values: unknown[], isKnown: (hostId: string) => boolean, now: number): Change[] {
    const dropped: Change[] = [];
    for (const value of values) {
      if (isCredential(value)) {
        const fits = isKnown(value.host_id) && !isForgotten(value, now) && this.#countOf(value.host_id) < MAX_PER_HOST;
        if (fits) this.#put(value);
        else dropped.push({ table: 'credential', digest: value.token_sha256, record: null });
      } else if (isConsumed(value)) {
        const { host_id } = value;
        const fits = host_id === undefined || (isKnown(host_id) && this.#countOf(host_id) < MAX_PER_HOST);
        if (fits && value.expires_at > now) this.#putConsumed(value);
        else dropped.push({ table: 'consumed', digest: value.token_sha256, record: null });
      }
    }
    return dropped;
  }

  /** Stores a credential of a host, replacing another route with the same credential ID. */
  publish(record: CredentialRecord, now: number): Change[] | Refusal {
    const { expires_at, kind, token_sha256: digest, host_id } = record;
    if (expires_at <= now || expires_at > now + MAX_LIFE[kind]) return 'unauthorized';
    const former = this.#records.get(digest);
    if (former && former.host_id !== host_id) return 'unauthorized';
    const changes: Change[] = [];
    if (kind === 'route') changes.push(...this.revoke(host_id, record.credential_id));
    if (!this.#records.has(digest) && this.#countOf(host_id) >= MAX_PER_HOST) {
      changes.push(...this.#makeRoom(host_id, now));
      if (this.#countOf(host_id) >= MAX_PER_HOST) return 'quota_exceeded';
    }
    this.#put(record);
    return [
      ...changes.filter((change) => change.digest !== digest),
      { table: 'credential', digest, record: { ...record } },
    ];
  }

  /** Drops the routes of a host with this credential ID. */
  revoke(hostId: string, credentialId: string): Change[] {
    const isMeant = (record?: CredentialRecord) => record?.kind === 'route' && record.credential_id === credentialId;
    return this.#remove([...this.#of(hostId)].filter((digest) => isMeant(this.#records.get(digest))));
  }

  /** The usable credential with this digest, or the reason for refusing it. Digests are compared in constant time. */
  find(
    digest: string,
    hostId: string,
    kind: string,
    now: number,
  ): CredentialRecord | 'replayed' | 'unauthorized' | 'expired' {
    const consumed = this.#consumed.get(digest);
    if (consumed && timingSafeEqual(consumed.token_sha256, digest) && consumed.expires_at > now) return 'replayed';
    const record = this.#records.get(digest);
    if (!record || !timingSafeEqual(record.token_sha256, digest)) return 'unauthorized';
    if (record.host_id !== hostId || record.kind !== kind || isForgotten(record, now)) return 'unauthorized';
    return record.expires_at > now ? record : 'expired';
  }

  /** Spends one use of a bootstrap. With the last one the digest is consumed. A route is not changed. */
  spend(record: CredentialRecord, now: number): Change[] {
    if (record.uses_left === null) return [];
    const digest = record.token_sha256;
    if (record.uses_left > 1) {
      record.uses_left--;
      return [{ table: 'credential', digest, record: { ...record } }];
    }
    const consumed = {
      token_sha256: digest,
      expires_at: Math.max(now + KEPT_AFTER, record.expires_at),
      host_id: record.host_id,
      spent_until: record.expires_at,
    };
    this.#putConsumed(consumed);
    return [...this.#remove([digest]), { table: 'consumed', digest, record: consumed }];
  }

  /** Removes long expired records, and all records of hosts that are no longer known. */
  prune(now: number, isKnown: (hostId: string) => boolean): Change[] {
    const changes: Change[] = [];
    for (const [hostId, digests] of this.#ofHost) {
      const over = (digest: string) => isForgotten(this.#records.get(digest) as CredentialRecord, now);
      changes.push(...this.#remove(isKnown(hostId) ? [...digests].filter(over) : [...digests]));
    }
    const isOver = ({ expires_at, host_id }: ConsumedRecord) =>
      expires_at <= now || (host_id !== undefined && !isKnown(host_id));
    for (const record of this.#consumed.values()) if (isOver(record)) changes.push(this.#forgetConsumed(record));
    return changes;
  }

  /** Removes expired credentials, and consumed bootstraps past their own expiry. */
  #makeRoom(hostId: string, now: number): Change[] {
    const isExpired = (digest: string) => (this.#records.get(digest)?.expires_at ?? 0) <= now;
    const changes = this.#remove([...this.#of(hostId)].filter(isExpired));
    for (const digest of this.#consumedOfHost.get(hostId) ?? []) {
      const record = this.#consumed.get(digest);
      if (record && (record.spent_until ?? 0) <= now) changes.push(this.#forgetConsumed(record));
    }
    return changes;
  }

  #of(hostId: string): Set<string> {
    return this.#ofHost.get(hostId) ?? new Set();
  }

  #countOf(hostId: string): number {
    return this.#of(hostId).size + (this.#consumedOfHost.get(hostId)?.size ?? 0);
  }

  #put(record: CredentialRecord): void {
    this.#records.set(record.token_sha256, record);
    const digests = this.#ofHost.get(record.host_id) ?? new Set();
    this.#ofHost.set(record.host_id, digests.add(record.token_sha256));
  }

  #putConsumed(record: ConsumedRecord): void {
    this.#consumed.set(record.token_sha256, record);
    if (record.host_id === undefined) return;
    const digests = this.#consumedOfHost.get(record.host_id) ?? new Set();
    this.#consumedOfHost.set(record.host_id, digests.add(record.token_sha256));
  }

  #remove(digests: string[]): Change[] {
    for (const digest of digests) {
      drop(this.#ofHost, this.#records.get(digest)?.host_id, digest);
      this.#records.delete(digest);
    }
    return digests.map((digest) => ({ table: 'credential', digest, record: null }));
  }

  #forgetConsumed({ token_sha256: digest, host_id }: ConsumedRecord): Change {
    this.#consumed.delete(digest);
    drop(this.#consumedOfHost, host_id, digest);
    return { table: 'consumed', digest, record: null };
  }
}

/** Removes a digest from its host's set, and an empty set from the map. */
function drop(sets: Map<string, Set<string>>, hostId: string | undefined, digest: string): void {
  if (hostId === undefined) return;
  const left = sets.get(hostId);
  left?.delete(digest);
  if (left?.size === 0) sets.delete(hostId);
}

const isForgotten = ({ expires_at }: CredentialRecord, now: number): boolean => expires_at + KEPT_AFTER <= now;

const isName = (value: unknown): boolean => typeof value === 'string' && value.length > 0 && value.length <= 128;

function isCredential(value: unknown): value is CredentialRecord {
  if (!isObject(value) || !isId(value.host_id) || !isDigest(value.token_sha256)) return false;
  if (!Number.isFinite(value.expires_at) || !isName(value.credential_id)) return false;
  if (value.kind === 'route') return value.uses_left === null && isDigest(value.device_id_hash);
  const uses = value.uses_left;
  return value.kind === 'bootstrap' && Number.isInteger(uses) && (uses as number) >= 1 && (uses as number) <= MAX_USES;
}

function isConsumed(value: unknown): value is ConsumedRecord {
  if (!isObject(value) || !isDigest(value.token_sha256) || !Number.isFinite(value.expires_at)) return false;
  const isOwned = isId(value.host_id) && Number.isFinite(value.spent_until);
  return value.kind === undefined && (isOwned || value.host_id === undefined);
}
