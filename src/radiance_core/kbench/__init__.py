"""Judge kernel libraries by recorded answers at the sizes of real models: ``rad-kbench``."""
