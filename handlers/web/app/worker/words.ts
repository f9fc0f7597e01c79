import type { I18n } from '../../shared/i18n.ts';

/** Texts of notifications, stored by the page in its language, since a worker cannot load one. */
export interface NoticeWords {
  title: string;
  message: string;
  question: string;
  answered: string;
  ends: string;
  waits: string;
  tooLate: string;
}

/** Name of the record, beside the inbox. */
export const NOTICE_WORDS = 'knock-words';

/** Used until the page has stored others. */
export const ENGLISH: NoticeWords = noticeWords((sentence) => sentence);

export function noticeWords(t: I18n['t']): NoticeWords {
  return {
    title: t('Your agent'),
    message: t('There is a message for you.'),
    question: t('There is a question for you.'),
    answered: t('Your agent has answered.'),
    ends: t('This device is signed out soon: ask the owner of the relay to extend its session.'),
    tooLate: t('Your answer came too late: it does not count.'),
    waits: t('Your answer waits for the network. It is sent when you open the app.'),
  };
}
