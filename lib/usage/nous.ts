import { at } from '../kit/json.ts';
import { UNSUPPORTED, usageProblem } from './call.ts';
import type { Credentials } from './credentials.ts';
import { type Provider, type UsageBalance, type UsageWindow, withoutSlash } from './provider.ts';
import { MAX_PLAN, numberOf, percentOf, textOf, timeOf, urlOf } from './values.ts';

const TIMEOUT = 8_000;

/** Balances: id, label and the path of the amount. */
const BALANCES: [id: string, label: string, path: string[]][] = [
  ['total', 'Total usable', ['paid_service_access', 'total_usable_credits']],
  ['subscription', 'Subscription', ['paid_service_access', 'subscription_credits_remaining']],
  ['top_up', 'Top-up', ['paid_service_access', 'purchased_credits_remaining']],
  ['rollover', 'Rollover', ['subscription', 'rollover_credits']],
];

export const nous: Provider = {
  id: 'nous',
  displayName: 'Nous',
  async load({ credentials, call, bases }) {
    const login = loginOf(credentials);
    if (!login) return null;
    const portal = withoutSlash(login.portal ?? bases.nous);
    const account = await call({ url: `${portal}/api/oauth/account`, token: login.token, timeout: TIMEOUT });
    const { subscription, paid_service_access: access } = account;
    if (![subscription, access].some((part) => typeof part === 'object' && part !== null)) {
      throw usageProblem(UNSUPPORTED);
    }
    const renewsAt = timeOf(at(subscription, 'current_period_end'));
    return {
      source: 'portal-account',
      plan: textOf(at(subscription, 'plan'), MAX_PLAN),
      renews_at: renewsAt,
      action_url: billingUrl(portal, account),
      windows: windowsOf(subscription, renewsAt),
      balances: balancesOf(account),
      details: isDepleted(access) ? ['Status: credits depleted'] : [],
    };
  },
};

/** The login of the provider, else the newest OAuth entry of its pool. */
function loginOf(credentials: Credentials): { token: string; portal: string | null } | null {
  const { entry, pool } = credentials.of('nous');
  const isOauth = ({ auth_type: type }: Record<string, unknown>) =>
    type == null || (typeof type === 'string' && type.toLowerCase().includes('oauth'));
  const newest = pool.filter(isOauth).sort((a, b) => renewedAt(b) - renewedAt(a));
  for (const candidate of [entry, ...newest]) {
    const token = textOf(candidate?.access_token, 16_384);
    if (token !== null) return { token, portal: textOf(candidate?.portal_base_url, 500) };
  }
  return null;
}

/** Time at which a pool entry was created or renewed, epoch milliseconds; 0 if unknown. */
function renewedAt(entry: Record<string, unknown>): number {
  for (const name of ['obtained_at', 'updated_at', 'created_at', 'expires_at']) {
    const time = Date.parse(timeOf(entry[name]) ?? '');
    if (!Number.isNaN(time)) return time;
  }
  return 0;
}

function windowsOf(subscription: unknown, renewsAt: string | null): UsageWindow[] {
  const monthly = numberOf(at(subscription, 'monthly_credits'));
  const left = numberOf(at(subscription, 'credits_remaining'));
  if (monthly === null || left === null || monthly <= 0 || left > monthly) return [];
  const used = percentOf((1 - left / monthly) * 100);
  return [{ id: 'subscription', label: 'Subscription', used_percent: used, reset_at: renewsAt, detail: null }];
}

function balancesOf(account: Record<string, unknown>): UsageBalance[] {
  const balances: UsageBalance[] = [];
  for (const [id, label, path] of BALANCES) {
    const amount = numberOf(at(account, ...path));
    if (amount !== null) balances.push({ id, label, amount, currency: 'USD' });
  }
  return balances;
}

function billingUrl(portal: string, account: Record<string, unknown>): string | null {
  const slug = textOf(at(account, 'organisation', 'slug') ?? at(account, 'organization', 'slug'), 200);
  return urlOf(`${portal}${slug === null ? '' : `/orgs/${encodeURIComponent(slug)}`}/billing?topup=open`);
}

function isDepleted(access: unknown): boolean {
  const total = numberOf(at(access, 'total_usable_credits'));
  return at(access, 'allowed') === false || at(access, 'status') === 'depleted' || (total !== null && total <= 0);
}
