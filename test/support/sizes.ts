import fc from 'fast-check';

// Without this, an array with a `maxLength` of 60 has ten elements at most: histories that are too short to show anything.
fc.configureGlobal({ defaultSizeToMaxWhenMaxSpecified: true });
