import { signal } from '@preact/signals';
import { createRequired } from './context.ts';

/** The languages besides English, in the order of every row of a table. */
const TRANSLATED: readonly string[] = ['de', 'es', 'fr', 'ja', 'pt'];

/** Sentences of an area by their English text, in each language of `TRANSLATED`. What is missing stays English. */
export type Table = Readonly<Record<string, readonly [de: string, es: string, fr: string, ja: string, pt: string]>>;

export type LoadTable = () => Promise<{ default: Table }>;

/** Languages by their code, each with its own name. */
export const LANGUAGES: Readonly<Record<string, string>> = {
  en: 'English',
  de: 'Deutsch',
  es: 'Español',
  fr: 'Français',
  ja: '日本語',
  pt: 'Português',
};

export type Values = Readonly<Record<string, string | number>>;

export type I18n = ReturnType<typeof createI18n>;

/** Puts sentences into the chosen language. `tables` are loaded with the first choice of another than English. */
export function createI18n(tables: readonly LoadTable[]) {
  const chosen = signal<{ language: string; sentences: Readonly<Record<string, string>> }>({
    language: 'en',
    sentences: {},
  });

  async function sentencesOf(language: string): Promise<Record<string, string>> {
    const index = TRANSLATED.indexOf(language);
    if (index < 0) return {};
    const loaded = await Promise.all([() => import('./locales/common.ts'), ...tables].map((load) => load()));
    const rows = loaded.flatMap(({ default: table }) => Object.entries<Table[string]>(table));
    return Object.fromEntries(rows.map(([sentence, row]) => [sentence, row[index] ?? sentence]));
  }

  return {
    get language(): string {
      return chosen.value.language;
    },
    /** The sentence in the chosen language, with `{name}` replaced by its value. Following a change of language. */
    t(sentence: string, values: Values = {}): string {
      const text = chosen.value.sentences[sentence] ?? sentence;
      return text.replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
    },
    /** Changes to a language once its sentences are there. An unknown one is English. */
    async choose(language: string): Promise<void> {
      const known = Object.hasOwn(LANGUAGES, language) ? language : 'en';
      chosen.value = { language: known, sentences: await sentencesOf(known) };
      document.documentElement.lang = known;
    },
  };
}

/** The best of the languages for this browser. */
export function preferredLanguage(): string {
  const preferred = navigator.languages.map((tag) => tag.slice(0, 2).toLowerCase());
  return preferred.find((language) => Object.hasOwn(LANGUAGES, language)) ?? 'en';
}

/** Reads the language and the translation. */
export const [ProvideI18n, useI18n] = createRequired<I18n>('The language');

/** The translation of sentences: `const t = useT()`. */
export const useT = (): I18n['t'] => useI18n().t;
