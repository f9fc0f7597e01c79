import { signal } from '@preact/signals';
import { createRequired } from './context.ts';

/** Sentences of an area by their English text, in each other language. Missing sentences stay English. */
export type Table = Readonly<Record<string, readonly [de: string, es: string, ja: string, pt: string, zh: string]>>;

export type LoadTable = () => Promise<{ default: Table }>;

/** Languages by their code, each with its own name (specification 2.1). A row of a table follows this order. */
export const LANGUAGES: Readonly<Record<string, string>> = {
  en: 'English',
  de: 'Deutsch',
  es: 'Español',
  ja: '日本語',
  pt: 'Português (Brasil)',
  zh: '简体中文',
};

const TRANSLATED: readonly string[] = Object.keys(LANGUAGES).filter((language) => language !== 'en');

/** Tags of the languages whose code alone does not name the variant that the tables hold. */
const TAGS: Readonly<Record<string, string>> = { pt: 'pt-BR', zh: 'zh-Hans' };

export type Values = Readonly<Record<string, string | number>>;

export type I18n = ReturnType<typeof createI18n>;

/** Translates sentences into the chosen language. `tables` are loaded with the first choice other than English. */
export function createI18n(tables: readonly LoadTable[]) {
  const chosen = signal<{ language: string; sentences: Readonly<Record<string, string>> }>({
    language: 'en',
    sentences: {},
  });

  let wanted = 'en';

  async function sentencesOf(language: string): Promise<Record<string, string>> {
    const index = TRANSLATED.indexOf(language);
    if (index < 0) return {};
    const loaded = await Promise.all([() => import('./locales/common.ts'), ...tables].map((load) => load()));
    const rows = loaded.flatMap(({ default: table }) => Object.entries<Table[string]>(table));
    return Object.fromEntries(rows.map(([sentence, row]) => [sentence, row[index] ?? sentence]));
  }

  return {
    /** Tag of the chosen language, for `Intl` and `lang`, which screen readers and fonts use. */
    get language(): string {
      return tagOf(chosen.value.language);
    },
    /** The sentence in the chosen language, with `{name}` replaced by its value. Reactive to changes of the language. */
    t(sentence: string, values: Values = {}): string {
      const text = chosen.value.sentences[sentence] ?? sentence;
      return text.replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
    },
    /** Changes the language once its sentences are loaded. An unknown one means English. */
    async choose(language: string): Promise<void> {
      const known = Object.hasOwn(LANGUAGES, language) ? language : 'en';
      wanted = known;
      const sentences = await sentencesOf(known);
      // The language may have been changed again during the load.
      if (wanted !== known) return;
      chosen.value = { language: known, sentences };
      document.documentElement.lang = tagOf(known);
    },
  };
}

const tagOf = (language: string): string => TAGS[language] ?? language;

/** The best of the languages for this browser: `pt-PT` is served `pt`, and `zh-CN` `zh`. */
export function preferredLanguage(): string {
  const preferred = navigator.languages.map((tag) => tag.toLowerCase().split('-')[0] ?? '');
  return preferred.find((language) => Object.hasOwn(LANGUAGES, language)) ?? 'en';
}

/** Reads the language and the translation. */
export const [ProvideI18n, useI18n] = createRequired<I18n>('The language');

/** The translation of sentences: `const t = useT()`. */
export const useT = (): I18n['t'] => useI18n().t;
