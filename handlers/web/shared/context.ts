import { type ComponentChildren, createContext, type FunctionComponent } from 'preact';
import { useContext } from 'preact/hooks';

type Provider<T> = FunctionComponent<{ value: T; children?: ComponentChildren }>;

/** A context that a component requires: its provider, and the hook that reads it. */
export function createRequired<T>(what: string): [provide: Provider<T>, use: () => T] {
  const Context = createContext<T | null>(null);
  const use = (): T => {
    const value = useContext(Context);
    if (value === null) throw new Error(`${what} is used outside of its provider`);
    return value;
  };
  return [Context.Provider as Provider<T>, use];
}
