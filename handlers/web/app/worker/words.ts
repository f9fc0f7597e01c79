import type { I18n } from '../../shared/i18n.ts';

/** Texts of notifications, stored by the page in its language, since a worker cannot load one. */
export interface KnockWords {
  title: string;
  message: string;
  question: string;
  answered: string;
  ends: string;
  waits: string;
  late: string;
}

/** Name of the record, beside the inbox. */
export const KNOCK_WORDS = 'knock-words';

/** Used until the page has stored others. */
export const ENGLISH: KnockWords = knockWords((sentence) => sentence);

export function knockWords(t: I18n['t']): KnockWords {
  return {
    title: t('Your agent'),
    message: t('There is a message for you.'),
    question: t('There is a question for you.'),
    answered: t('Your agent has answered.'),
    ends: t('This device is signed out soon: ask the owner of the relay to extend its session.'),
    late: t('Your answer came too late: it does not count.'),
    waits: t('Your answer waits for the network. It is sent when you open the app.'),
  };
}
