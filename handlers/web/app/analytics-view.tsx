import type { I18n } from '../shared/i18n.ts';
import { useI18n } from '../shared/i18n.ts';
import { createAnalytics, median, type Samples } from './analytics.ts';
import type { TokenUsage } from './chat/turns.ts';
import { useApp } from './context.ts';

/** The tokens of one answer, or of several. */
export function tokensText({ input, output, total }: TokenUsage, t: I18n['t'], language: string): string {
  const { format } = new Intl.NumberFormat(language);
  return t('{total} tokens: {input} in, {output} out', {
    total: format(total),
    input: format(input),
    output: format(output),
  });
}

/** Figures of this page since it was loaded. */
export function AnalyticsCard() {
  const { t, language } = useI18n();
  const app = useApp();
  const { firstToken, completion, health, tokens, streams } = app.retained(createAnalytics).figures.value;
  const ended = streams.done + streams.broken;
  const none = t('nothing measured yet');

  function timeOf(samples: Samples): string {
    const middle = median(samples);
    const last = samples.at(-1);
    if (middle === undefined || last === undefined) return none;
    return t('{last}, median {median} of {n}', {
      last: durationText(last, language),
      median: durationText(middle, language),
      n: samples.length,
    });
  }

  return (
    <section class="card" aria-labelledby="analytics">
      <h2 id="analytics">{t('Since this page was loaded')}</h2>
      <dl class="facts">
        <dt>{t('Time to first token')}</dt>
        <dd>{timeOf(firstToken)}</dd>
        <dt>{t('Completion time')}</dt>
        <dd>{timeOf(completion)}</dd>
        <dt>{t('Token usage')}</dt>
        <dd>
          {tokens.answers > 0
            ? tokensText(tokens, t, language)
            : ended > 0
              ? t('not reported by the API server')
              : none}
        </dd>
        <dt>{t('Health latency')}</dt>
        <dd>{timeOf(health)}</dd>
        <dt>{t('Stream success rate')}</dt>
        <dd>
          {ended === 0
            ? none
            : t('{percent}: {done} of {n}', {
                percent: new Intl.NumberFormat(language, { style: 'percent' }).format(streams.done / ended),
                done: streams.done,
                n: ended,
              })}
        </dd>
      </dl>
      <p class="small soft">
        {t(
          'These figures are kept in memory only: they end with the page and are never sent. An answer that you stop counts neither as success nor as failure.',
        )}
      </p>
    </section>
  );
}

/** A duration in milliseconds, or in seconds from one on. */
function durationText(milliseconds: number, language: string): string {
  const isShort = milliseconds < 1000;
  return new Intl.NumberFormat(language, {
    style: 'unit',
    unit: isShort ? 'millisecond' : 'second',
    unitDisplay: 'short',
    maximumFractionDigits: isShort ? 0 : 1,
  }).format(isShort ? milliseconds : milliseconds / 1000);
}
