import { ageText, useNow } from '../shared/ages.ts';
import { Chip } from '../shared/components.tsx';
import { useT } from '../shared/i18n.ts';
import { useApp } from './context.ts';
import { PROOF_LIFE } from './session.ts';

/** State and round trip of the connection to the relay. A tap retries at once. */
export function ConnectionChip() {
  const t = useT();
  const { session } = useApp();
  return (
    <button type="button" class="chip-button" title={t('Ask the relay now')} onClick={session.retry}>
      <ConnectionState />
    </button>
  );
}

/**
 * Good only with an echo in the last 45 seconds (contract 09 §2). The offline time counts from the loss of the connection.
 */
function ConnectionState() {
  const t = useT();
  const { session } = useApp();
  const now = useNow().value;
  const state = session.state.value;
  const proof = session.proof.value;
  const lostAt = session.lostAt.value;
  if (state.name === 'online') {
    const isGood = session.isOnline.value && proof !== null && now - proof.at <= PROOF_LIFE;
    if (!isGood) return <Chip tone="warn">{t('No answer yet')}</Chip>;
    if (session.isAtMailbox.value) return <Chip tone="warn">{t('Mailbox · {n} ms', { n: proof.roundTrip })}</Chip>;
    return <Chip tone="good">{t('Connected · {n} ms', { n: proof.roundTrip })}</Chip>;
  }
  if (state.name === 'unpaired' || state.name === 'stopped') return <Chip>{t('Not paired')}</Chip>;
  if (!session.isAway.value) return <Chip>{t('Connecting')}</Chip>;
  const left = state.name === 'waiting' ? session.retryAt.value - now : 0;
  return (
    <>
      <Chip tone="bad">
        {lostAt === null ? t('Offline') : t('Offline for {age}', { age: ageText(now - lostAt, t) })}
      </Chip>
      {left > 2000 && <span class="small soft">{t('Next try in {age}', { age: ageText(left, t) })}</span>}
    </>
  );
}
