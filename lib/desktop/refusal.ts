import { type ErrorKind, RelayError } from '../errors.ts';

/** The error for a tool that was not run, with the code that clients check (contract 07 §2.3). */
export const refusal = (kind: ErrorKind, code: string, sentence: string): RelayError =>
  new RelayError(kind, sentence, { extra: { error_code: code } });
