import { at } from '../kit/json.ts';
import { NO_WINDOWS, UNSUPPORTED, usageProblem } from './call.ts';
import { type Provider, type UsageWindow, withoutSlash } from './provider.ts';
import { MAX_LABEL, MAX_PLAN, numberOf, percentOf, textOf, timeOf, titleCase } from './values.ts';

const MAX_PRODUCTS = 8;
const MAX_ID = 40;

export const supergrok: Provider = {
  id: 'supergrok',
  displayName: 'SuperGrok',
  async load({ credentials, call, bases }) {
    const { entry } = credentials.of('xai-oauth');
    if (!entry) return null;
    const token = textOf(at(entry, 'tokens', 'access_token'), 16_384);
    if (token === null) throw usageProblem('Could not resolve SuperGrok credentials');
    const base = withoutSlash(bases.supergrok);
    const user = await call({ url: `${base}/v1/user`, token });
    const userId = textOf(user.userId, 200);
    if (userId === null) throw usageProblem('Provider returned no account identity');
    const billing = await call({ url: `${base}/v1/billing?format=credits`, token, headers: { 'x-userid': userId } });
    const { config } = billing;
    if (typeof config !== 'object' || config === null) throw usageProblem(UNSUPPORTED);
    const windows = [...periodOf(config), ...productsOf(config)];
    if (windows.length === 0) throw usageProblem(NO_WINDOWS);
    const tier = at(config, 'subscriptionTier') ?? billing.subscriptionTier ?? user.subscriptionTier;
    return { source: 'billing_api', plan: textOf(tier, MAX_PLAN), windows, details: detailsOf(config) };
  },
};

/** The window of the billing period, unless nothing is known about it. */
function periodOf(config: object): UsageWindow[] {
  const used = numberOf(at(config, 'used', 'val'));
  const limit = numberOf(at(config, 'monthlyLimit', 'val'));
  const share = used !== null && limit !== null && limit > 0 ? percentOf((used / limit) * 100) : null;
  const percent = percentOf(at(config, 'creditUsagePercent')) ?? share;
  const resetAt = timeOf(at(config, 'currentPeriod', 'end')) ?? timeOf(at(config, 'billingPeriodEnd'));
  if (percent === null && resetAt === null) return [];
  const type = textOf(at(config, 'currentPeriod', 'type'), MAX_LABEL)?.replace(/^USAGE_PERIOD_TYPE_/, '');
  return [
    {
      id: 'period',
      label: (type && titleCase(type)) || 'Current period',
      used_percent: percent,
      reset_at: resetAt,
      detail: percent === null ? 'No usage reported yet' : null,
    },
  ];
}

function productsOf(config: object): UsageWindow[] {
  const products = at(config, 'productUsage');
  const windows: UsageWindow[] = [];
  for (const product of Array.isArray(products) ? products : []) {
    const name = textOf(at(product, 'product') ?? at(product, 'name'), MAX_LABEL);
    const percent = percentOf(
      at(product, 'usagePercent') ?? at(product, 'creditUsagePercent') ?? at(product, 'percent'),
    );
    if (name === null || percent === null) continue;
    const slug = name.toLowerCase().replace(/[^a-z0-9]+/g, '_');
    windows.push({
      id: `product_${slug}`.slice(0, MAX_ID),
      label: name.replace(/([a-z0-9])([A-Z])/g, '$1 $2').slice(0, MAX_LABEL),
      used_percent: percent,
      reset_at: null,
      detail: null,
    });
    if (windows.length === MAX_PRODUCTS) break;
  }
  return windows;
}

/** Amounts are in cents. */
const dollars = (cents: number): string => `$${(cents / 100).toFixed(2)}`;

function detailsOf(config: object): string[] {
  const details: string[] = [];
  const used = numberOf(at(config, 'onDemandUsed', 'val'));
  const cap = numberOf(at(config, 'onDemandCap', 'val'));
  if (cap !== null && cap > 0) details.push(`On-demand: ${dollars(used ?? 0)} used of ${dollars(cap)}`);
  else if (at(config, 'onDemandEnabled') === true) details.push('On-demand enabled');
  const prepaid = numberOf(at(config, 'prepaidBalance', 'val'));
  if (prepaid !== null) details.push(`Prepaid balance: ${dollars(prepaid)}`);
  return details;
}
