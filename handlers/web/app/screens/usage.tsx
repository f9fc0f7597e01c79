import type { ProviderUsage, UsageCredential, UsageWindow } from '../../../../lib/usage/provider.ts';
import { ageText, useNow } from '../../shared/ages.ts';
import { ApiError } from '../../shared/api.ts';
import { Button, Chip, Empty, Notice } from '../../shared/components.tsx';
import { useI18n, useT } from '../../shared/i18n.ts';
import { LoadedView, useLoad } from '../../shared/load.tsx';
import { AnalyticsCard } from '../analytics-view.tsx';
import { useApp } from '../context.ts';

/** `GET /usage/providers` (contract 04 §9.2). */
interface Usage {
  fetched_at: string;
  providers: ProviderUsage[];
}

/** Percent from which a quota counts as nearly used up. */
const NEARLY_ALL = 90;

/** Used share of each provider's quota. */
export default function UsageScreen() {
  const t = useT();
  const { api } = useApp();
  const { state, reload } = useLoad(async (signal) => {
    const asked = api.call<Usage>('usage/providers', { signal });
    return asked.catch((error: unknown) => {
      if (error instanceof ApiError && error.status === 404) return null;
      throw error;
    });
  });
  return (
    <div class="screen">
      <AnalyticsCard />
      <LoadedView state={state} reload={reload}>
        {(usage) =>
          usage ? (
            <Providers usage={usage} error={state.value.error} reload={reload} />
          ) : (
            <Empty icon="usage">
              {t('This relay does not report usage. Start it with RELAY_PROVIDER_USAGE_ENABLED=1 to see it here.')}
            </Empty>
          )
        }
      </LoadedView>
    </div>
  );
}

function Providers({ usage, error, reload }: { usage: Usage; error: string | undefined; reload(): void }) {
  const { t, language } = useI18n();
  const now = useNow();
  const age = ageText(now.value - Date.parse(usage.fetched_at), t);
  const set = usage.providers.filter(({ status }) => status !== 'not_configured');
  const unset = usage.providers.filter(({ status }) => status === 'not_configured').map((one) => one.display_name);
  const names = new Intl.ListFormat(language, { type: 'conjunction' }).format(unset);
  return (
    <>
      <div class="row apart">
        <p class="grow soft small">{t('Asked {age} ago', { age })}</p>
        <Button icon="refresh" label={t('Refresh')} onClick={reload} />
      </div>
      {error !== undefined && <Notice tone="warn">{t(error)}</Notice>}
      {set.length === 0 && (
        <Empty icon="usage">{t('No provider is set up for the agent. Sign in to one on its machine.')}</Empty>
      )}
      {set.map((provider) => (
        <ProviderCard key={provider.id} provider={provider} />
      ))}
      {unset.length > 0 && <p class="soft small">{t('Not set up: {names}', { names })}</p>}
    </>
  );
}

function ProviderCard({ provider }: { provider: ProviderUsage }) {
  const { t, language } = useI18n();
  const resets = useResetText();
  const { display_name: name, plan, message, action_url: action } = provider;
  const money = (amount: number, currency: string) =>
    new Intl.NumberFormat(language, { style: 'currency', currency }).format(amount);
  return (
    <section class="card" aria-label={name}>
      <div class="row apart">
        <h2>{name}</h2>
        {plan && <span class="soft">{plan}</span>}
      </div>
      {provider.status === 'unavailable' && (
        <Notice tone="warn">{message ? t(message) : t('Its usage could not be loaded.')}</Notice>
      )}
      {/* With several credentials, the provider's windows are those of the active one. */}
      {provider.credentials.length < 2 && <Windows of={name} windows={provider.windows} />}
      {provider.balances.length > 0 && (
        <dl class="facts">
          {provider.balances.map(({ id, label, amount, currency }) => [
            <dt key={`${id} name`}>{t(label)}</dt>,
            <dd key={id}>{money(amount, currency)}</dd>,
          ])}
        </dl>
      )}
      {provider.details.map((detail) => (
        <p key={detail} class="soft small">
          {detail}
        </p>
      ))}
      {provider.renews_at && <p class="soft small">{resets(provider.renews_at, 'Renews in {age}')}</p>}
      {provider.credentials.length > 1 &&
        provider.credentials.map((one) => <CredentialPart key={one.id} of={name} credential={one} />)}
      {action && /^https?:/.test(action) && (
        <div class="actions">
          <a class="button" href={action} target="_blank" rel="noopener noreferrer">
            {t('Top up')}
          </a>
        </div>
      )}
    </section>
  );
}

function CredentialPart({ of, credential }: { of: string; credential: UsageCredential }) {
  const t = useT();
  const { label, status, active, message } = credential;
  return (
    <div class="usage-part">
      <div class="row">
        <h3 class="grow">{label}</h3>
        {active && <Chip>{t('In use')}</Chip>}
        {status === 'at_limit' && <Chip tone="warn">{t('At its limit')}</Chip>}
        {status === 'unavailable' && <Chip tone="bad">{t('Not available')}</Chip>}
      </div>
      {message && <p class="small">{t(message)}</p>}
      <Windows of={`${of}, ${label}`} windows={credential.windows} />
    </div>
  );
}

function Windows({ of, windows }: { of: string; windows: readonly UsageWindow[] }) {
  const { t, language } = useI18n();
  const resets = useResetText();
  const percent = (value: number) =>
    new Intl.NumberFormat(language, { style: 'percent', maximumFractionDigits: 1 }).format(value / 100);
  return (
    <>
      {windows.map(({ id, label, used_percent: used, reset_at: reset, detail }) => (
        <div key={id} class="usage-window">
          <div class="row apart">
            <span>{t(label)}</span>
            <strong>{used === null ? t('not reported') : t('{percent} used', { percent: percent(used) })}</strong>
          </div>
          {used !== null && (
            <progress
              class={used >= NEARLY_ALL ? 'nearly' : ''}
              max={100}
              value={used}
              aria-label={`${of}: ${t(label)}`}
            />
          )}
          {(reset || detail) && (
            <span class="soft small">
              {[reset && resets(reset, 'Resets in {age}'), detail].filter(Boolean).join(' · ')}
            </span>
          )}
        </div>
      ))}
    </>
  );
}

/** The time until a moment, in a sentence with `{age}`. A text that is not a time is shown as the provider wrote it. */
function useResetText(): (moment: string, sentence: string) => string {
  const t = useT();
  const now = useNow(30_000);
  return (moment, sentence) => {
    const left = Date.parse(moment) - now.value;
    return Number.isNaN(left) ? moment : t(sentence, { age: ageText(left, t) });
  };
}
