import { decodeJwt } from 'jose/jwt/decode';
import { RelayError } from '../errors.ts';
import { at } from '../kit/json.ts';
import { sha256 } from '../kit/sha256.ts';
import { type Call, NO_WINDOWS, UNSUPPORTED, usageProblem } from './call.ts';
import type { ActiveCredential, Credentials } from './credentials.ts';
import {
  type Provider,
  type ProviderUsage,
  type Usage,
  type UsageCredential,
  type UsageWindow,
  withoutSlash,
} from './provider.ts';
import { MAX_LABEL, MAX_PLAN, numberOf, percentOf, textOf, timeOf, titleCase, windowId } from './values.ts';

const MAX_ENTRIES = 8;
const PUBLIC_ID = 12;
const DEAD = new Set(['dead', 'invalid']);
const LIMITED = new Set(['exhausted', 'rate_limited', 'cooldown']);
const LABELS: Record<number, string> = { 18000: 'Session', 604800: 'Weekly' };

type Entry = Record<string, unknown>;

/** One account, as the provider describes it. */
interface Account {
  windows: UsageWindow[];
  plan: string | null;
  details: string[];
}

interface LoadedEntry {
  rawId: string;
  /** Without `active`, which depends on the session. */
  credential: Omit<UsageCredential, 'active'>;
  fetched: boolean;
}

export const openaiCodex: Provider = {
  id: 'openai-codex',
  displayName: 'Codex',
  async load({ credentials, call, bases }) {
    const entries = entriesOf(credentials);
    if (entries.length === 0) return null;
    const loaded = await Promise.all(entries.map((entry, index) => loadEntry(entry, index, bases.codex, call)));
    return (active) => usageFor(loaded, active);
  },
};

/** The pool by priority, else the provider's login. */
function entriesOf(credentials: Credentials): Entry[] {
  const { entry, pool } = credentials.of(openaiCodex.id);
  const priority = (candidate: Entry) => numberOf(candidate.priority) ?? 0;
  if (pool.length > 0) return [...pool].sort((a, b) => priority(a) - priority(b)).slice(0, MAX_ENTRIES);
  const tokens = at(entry, 'tokens');
  if (textOf(at(tokens, 'access_token'), 1) === null) return [];
  return [{ id: openaiCodex.id, base_url: entry?.base_url, ...(tokens as Entry) }];
}

async function loadEntry(entry: Entry, index: number, base: string, call: Call): Promise<LoadedEntry> {
  let account: Account | null = null;
  let message: string | null = null;
  try {
    account = await readAccount(entry, base, call);
  } catch (error) {
    message = error instanceof RelayError ? error.message : `Could not load ${openaiCodex.displayName} usage`;
  }
  const rawId = textOf(entry.id, 1024) ?? `${openaiCodex.id}:${index + 1}`;
  const poolStatus = textOf(entry.last_status, 40)?.toLowerCase() ?? null;
  return {
    rawId,
    fetched: account !== null,
    credential: {
      id: sha256(rawId).slice(0, PUBLIC_ID),
      label: textOf(entry.label, MAX_LABEL) ?? `Credential ${index + 1}`,
      status: statusOf(poolStatus, account),
      pool_status: poolStatus,
      last_status_at: timeOf(entry.last_status_at),
      reset_at: timeOf(entry.last_error_reset_at),
      plan: account?.plan ?? null,
      windows: account?.windows ?? [],
      details: account?.details ?? [],
      message,
    },
  };
}

function statusOf(poolStatus: string | null, account: Account | null): UsageCredential['status'] {
  if (poolStatus !== null && DEAD.has(poolStatus)) return 'unavailable';
  if (poolStatus !== null && LIMITED.has(poolStatus)) return 'at_limit';
  if (account?.windows.some(({ used_percent: used }) => used !== null && used >= 100)) return 'at_limit';
  return account ? 'available' : 'unavailable';
}

async function readAccount(entry: Entry, base: string, call: Call): Promise<Account> {
  const token = textOf(entry.access_token, 16_384);
  if (token === null) throw new Error('the credential has no token');
  const accountId = textOf(entry.account_id, 200) ?? textOf(entry.chatgpt_account_id, 200) ?? accountOf(token);
  const response = await call({
    url: `${usagePrefix(textOf(entry.base_url, 500) ?? base)}/usage`,
    token,
    headers: { 'user-agent': 'codex-cli', ...(accountId === null ? {} : { 'chatgpt-account-id': accountId }) },
  });
  const limits = response.rate_limit;
  if (typeof limits !== 'object' || limits === null) throw usageProblem(UNSUPPORTED);
  const windows = [
    ...windowOf(at(limits, 'primary_window'), 'Session'),
    ...windowOf(at(limits, 'secondary_window'), 'Weekly'),
  ];
  if (windows.length === 0) throw usageProblem(NO_WINDOWS);
  const plan = textOf(response.plan_type, MAX_PLAN);
  const balance = numberOf(at(response, 'credits', 'balance'));
  return {
    windows,
    plan: plan === null ? null : titleCase(plan),
    details: balance === null ? [] : [`Credits balance: ${balance}`],
  };
}

/** Base URL of the usage routes, from the base URL of the model. */
export function usagePrefix(base: string): string {
  const root = withoutSlash(withoutSlash(base).replace(/\/codex$/, ''));
  return `${root}${root.includes('/backend-api') ? '/wham' : '/api/codex'}`;
}

function windowOf(window: unknown, byPosition: string): UsageWindow[] {
  const percent = percentOf(at(window, 'used_percent'));
  if (percent === null) return [];
  const label = LABELS[numberOf(at(window, 'limit_window_seconds')) ?? 0] ?? byPosition;
  const resetAt = timeOf(at(window, 'reset_at'));
  return [{ id: windowId(label), label, used_percent: percent, reset_at: resetAt, detail: null }];
}

/** The account in a token's claims, which are not verified here, since the provider does that. */
function accountOf(token: string): string | null {
  try {
    return textOf(at(decodeJwt(token), 'https://api.openai.com/auth', 'chatgpt_account_id'), 200);
  } catch {
    return null;
  }
}

function usageFor(entries: LoadedEntry[], observed: ActiveCredential | null): Usage {
  const { active, ...state } = activeOf(entries, observed);
  const count = (status: UsageCredential['status']) =>
    entries.filter(({ credential }) => credential.status === status).length;
  return {
    source: active?.fetched ? 'usage_api' : 'credential_pool',
    plan: active?.credential.plan ?? null,
    message: active?.credential.message ?? null,
    windows: active?.credential.windows ?? [],
    details: [`${count('available')} available · ${count('at_limit')} at limit · ${entries.length} total`],
    credentials: entries.map((entry) => {
      const { id, label, ...known } = entry.credential;
      return { id, label, active: entry === active, ...known };
    }),
    active_credential_id: active?.credential.id ?? null,
    ...state,
  };
}

/** The hook may record either the id of the pool entry or the public one. */
function activeOf(
  entries: LoadedEntry[],
  observed: ActiveCredential | null,
): { active?: LoadedEntry } & Pick<ProviderUsage, 'active_credential_state' | 'active_observed_at'> {
  if (observed?.providerId === openaiCodex.id) {
    const id = observed.credentialId;
    const active = entries.find((entry) => entry.rawId === id || entry.credential.id === id);
    if (active) return { active, active_credential_state: 'known', active_observed_at: observed.observedAt };
  }
  if (entries.length === 1) {
    return { active: entries[0], active_credential_state: 'single_credential', active_observed_at: null };
  }
  return { active_credential_state: 'unknown', active_observed_at: null };
}
