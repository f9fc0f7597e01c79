import { ageText, useNow } from '../shared/ages.ts';
import { Chip } from '../shared/components.tsx';
import { useT } from '../shared/i18n.ts';
import { useApp } from './context.ts';
import { PROOF_LIFE } from './session.ts';

/** Whether the relay answers, and how fast: good only with an echo of the last 45 seconds. */
export function ConnectionChip() {
  const t = useT();
  const { session } = useApp();
  const now = useNow();
  const state = session.state.value;
  const proof = session.proof.value;
  switch (state.name) {
    case 'online': {
      if (!proof || now.value - proof.at > PROOF_LIFE) return <Chip tone="warn">{t('No answer yet')}</Chip>;
      return <Chip tone="good">{t('Connected · {n} ms', { n: proof.roundTrip })}</Chip>;
    }
    case 'connecting':
    case 'authenticating':
      return <Chip>{t('Connecting')}</Chip>;
    case 'waiting':
      if (!proof) return <Chip tone="bad">{t('Offline')}</Chip>;
      return <Chip tone="bad">{t('Offline for {age}', { age: ageText(now.value - proof.at, t) })}</Chip>;
    default:
      return <Chip>{t('Not paired')}</Chip>;
  }
}
