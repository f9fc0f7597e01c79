import type { Source } from '../answer.ts';
import type { Call } from '../call.ts';
import type { Effort } from '../efforts.ts';

/** Where a provider is asked, and as whom. Not for answers, not for logs. */
export interface Target {
  /** Without a slash at its end. */
  base: string;
  secret?: string;
}

/** What a provider's answer says about a model as the client named it; undefined when it says nothing. */
export type Reading = (model: string) => Effort[] | undefined;

/** A provider that can be asked what its models can do (contract 07 §3, dynamic resolvers). One file for each. */
export interface Provider {
  readonly source: Source;
  readonly base: {
    /** Names in the profile's `.env`, the first one wins. */
    variables: readonly string[];
    fallback: string;
    /** Whether `model.base_url` of the profile counts too. */
    fromModel: boolean;
    /** Whether `fallback` is the host itself, which is nowhere at the edge. */
    onHost?: boolean;
  };
  readonly secret: {
    variables: readonly string[];
    /** Without a secret it is not asked. */
    required: boolean;
  };
  /** What to ask about these models: each question once, and the models that it answers for. */
  questions(models: readonly string[]): Map<string, string[]>;
  /** Asks one question. Rejects when there is no usable answer. */
  ask(question: string, target: Target, call: Call): Promise<Reading>;
}

/** For a provider that answers for all of its models at once. */
export const oneCatalog: Provider['questions'] = (models) => new Map([['catalog', [...models]]]);

export const bearer = ({ secret }: Target): Record<string, string> =>
  secret === undefined ? {} : { authorization: `Bearer ${secret}` };

/** A base without the `/v1` of its chat routes. */
export const withoutV1 = (base: string): string => base.replace(/\/v1$/, '').replace(/\/+$/, '');
