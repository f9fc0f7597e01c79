import { useI18n } from '../../shared/i18n.ts';
import { HOME_THREAD, type Thread } from './items.ts';

/** The display name of a thread. */
export function useThreadName(): (thread: Pick<Thread, 'id' | 'title'> | undefined) => string {
  const { t } = useI18n();
  return (thread) => thread?.title ?? (!thread || thread.id === HOME_THREAD ? t('Your agent') : thread.id);
}
