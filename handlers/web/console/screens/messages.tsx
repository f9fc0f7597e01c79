import { useSignal } from '@preact/signals';
import { timeText } from '../../shared/ages.ts';
import { Button, Chip, Empty, Question, type Tone } from '../../shared/components.tsx';
import { useI18n, useT } from '../../shared/i18n.ts';
import { useConsole } from '../context.ts';
import { ResourceView, restoreFocus, useAction } from '../parts.tsx';
import { setTo } from '../signals.ts';
import type { HistoryItem, Outbound } from '../stores/answers.ts';

/** Messages that wait for the phone, and the states of the last ones. */
export default function Messages() {
  const t = useT();
  const { relay } = useConsole();
  return (
    <div class="screen">
      <ResourceView of={relay.outbound}>{(outbound) => <Queue outbound={outbound} />}</ResourceView>
      <section aria-labelledby="history">
        <h2 id="history">{t('Last messages and replies')}</h2>
        <ResourceView of={relay.history}>
          {(items) =>
            items.length === 0 ? (
              <Empty icon="chat">{t('Nothing has been sent yet.')}</Empty>
            ) : (
              <ul class="list">
                {items.toReversed().map((item) => (
                  <li key={item.seq}>
                    <Item item={item} />
                  </li>
                ))}
              </ul>
            )
          }
        </ResourceView>
      </section>
    </div>
  );
}

function Queue({ outbound: { queued, messages } }: { outbound: Outbound }) {
  const { t, language } = useI18n();
  const { relay, isAway } = useConsole();
  const { isBusy, run } = useAction();
  const isAsking = useSignal(false);
  const close = setTo(isAsking, false);

  async function cancel(id?: string): Promise<void> {
    const query = id === undefined ? '' : `?message_id=${encodeURIComponent(id)}`;
    await run(
      `phone/outbound${query}`,
      { method: 'DELETE' },
      t(id === undefined ? 'All were cancelled.' : 'Cancelled.'),
    );
    close();
    void relay.outbound.refresh().then(restoreFocus);
  }

  return (
    <section aria-labelledby="queue">
      <div class="row apart">
        <h2 id="queue">{t('Waiting for the phone: {n}', { n: queued })}</h2>
        {messages.length > 1 && (
          <Button kind="danger" icon="trash" disabled={isBusy || isAway.value} onClick={setTo(isAsking, true)}>
            {t('Cancel all')}
          </Button>
        )}
      </div>
      {messages.length === 0 ? (
        <p class="soft">{t('Nothing is waiting: messages arrive at once, or wait here for a phone for 24 hours.')}</p>
      ) : (
        <ul class="list">
          {messages.map(({ message_id: id, text, sent_at: at }) => (
            <li key={id} class="item">
              <span class="text">
                <span dir="auto">{text}</span>
                <span class="small soft">{timeText(at, language)}</span>
              </span>
              <Button
                icon="close"
                label={t('Cancel this message')}
                disabled={isBusy || isAway.value}
                onClick={() => void cancel(id)}
              />
            </li>
          ))}
        </ul>
      )}
      {isAsking.value && (
        <Question
          title={t('Cancel {n} messages?', { n: messages.length })}
          confirm={t('Cancel them')}
          isBusy={isBusy}
          isAway={isAway.value}
          onConfirm={() => void cancel()}
          onClose={close}
        >
          <p>{t('The phone will not get them.')}</p>
        </Question>
      )}
    </section>
  );
}

const STATES: Readonly<Record<string, readonly [string, Tone | undefined]>> = {
  queued: ['Waits', undefined],
  sent: ['Sent', undefined],
  shown: ['Shown', 'good'],
  answered: ['Answered', 'good'],
  expired: ['Expired', 'warn'],
  cancelled: ['Cancelled', undefined],
  dropped: ['Dropped: too many waited', 'warn'],
  waiting: ['Not read by the agent', undefined],
  taken: ['Read by the agent', 'good'],
};

/** States of a question that can be withdrawn. */
const OPEN: ReadonlySet<string> = new Set(['queued', 'sent', 'shown']);

function Item({ item }: { item: HistoryItem }) {
  const { t, language } = useI18n();
  const { relay, isAway } = useConsole();
  const { isBusy, run } = useAction();
  const [word, tone] = item.late ? (['Too late', 'warn'] as const) : (STATES[item.state] ?? [item.state, undefined]);

  async function withdraw(): Promise<void> {
    const query = `?message_id=${encodeURIComponent(item.message_id)}`;
    await run(`phone/outbound${query}`, { method: 'DELETE' }, t('The question was withdrawn.'));
    void relay.history.refresh().then(restoreFocus);
  }

  return (
    <div class="item">
      <span class="text">
        {item.title && <b dir="auto">{item.title}</b>}
        <span class="clamp" dir="auto">
          {item.text}
        </span>
        {item.answers && (
          <span class="row small">
            <span class="off-screen">{t('Answers')}</span>
            {item.answers.map((answer) => (
              <Chip key={answer}>
                <span dir="auto">{answer}</span>
              </Chip>
            ))}
          </span>
        )}
        <span class="small soft">
          {t(item.kind === 'reply' ? 'Reply from the phone' : 'Message')} · {timeText(item.ts, language)}
        </span>
      </span>
      <Chip tone={isAway.value ? undefined : tone}>{t(word)}</Chip>
      {item.question && OPEN.has(item.state) && (
        <Button
          icon="close"
          label={t('Withdraw this question')}
          disabled={isBusy || isAway.value}
          onClick={() => void withdraw()}
        />
      )}
    </div>
  );
}
