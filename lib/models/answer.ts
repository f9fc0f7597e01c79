import type { Effort } from './efforts.ts';

/** Where the efforts of a model are known from. */
export type Source = 'provider-adapter' | 'canonical-fallback' | 'models.dev' | 'provider-catalog' | 'github-catalog';

/** What is known of one model. Shared between requests: never changed. */
export interface Answer {
  readonly efforts: readonly Effort[];
  /** False when the efforts are a guess that fits every model. */
  readonly exact: boolean;
  readonly source: Source;
}
